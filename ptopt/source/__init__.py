"""One Python file, understood once."""
