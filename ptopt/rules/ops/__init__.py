"""Tensor operations: loops and chains of calls that one better call replaces."""
