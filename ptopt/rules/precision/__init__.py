"""Number formats: mixed precision that is missing, misplaced, or wider than needed."""
