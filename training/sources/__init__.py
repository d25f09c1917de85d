"""Where training data comes from: one file a source, all behind `base.Source`."""
