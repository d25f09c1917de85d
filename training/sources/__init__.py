"""Sources of training data: one module each, behind `base.Source`."""
