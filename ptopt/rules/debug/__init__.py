"""Switches for debugging and reproducibility that slow a run down when they stay on."""
