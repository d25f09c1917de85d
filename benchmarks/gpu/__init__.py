"""What only a GPU can tell: `python -m benchmarks.gpu` does all of it on one GPU within half an hour."""
