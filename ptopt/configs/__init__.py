"""Configuration files of training and serving, read as values with their places; nothing of them is ever executed."""
