"""ptopt reviews pull requests for PyTorch performance."""

__version__ = "0.1.0"
