"""Runs pairs of our own code, before and after, in a sandboxed subprocess."""
