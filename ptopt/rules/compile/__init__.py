"""torch.compile: where it is called, and what it is called on."""
