"""Attention: written by hand, or called in a way that keeps it off the fused kernels."""
