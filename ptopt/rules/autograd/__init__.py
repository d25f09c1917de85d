"""Autograd: graphs that are recorded, or kept, though nobody calls backward on them."""
