"""Copies between host and device that can be saved, or be made not to block."""
