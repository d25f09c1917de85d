"""Which findings are worth a comment: features, and a small model learned from labelled comments."""
