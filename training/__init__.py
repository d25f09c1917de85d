"""Data for the model: sources, reverse synthesis, quality, and the dataset that comes out."""
