"""Optimizers, gradient accumulation, and the wrappers that average gradients over processes."""
