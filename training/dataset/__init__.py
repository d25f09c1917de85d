"""From code to a dataset: reverse synthesis, quality, splits, and the files that come out."""
