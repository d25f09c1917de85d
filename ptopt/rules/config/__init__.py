"""Rules about settings of training and serving in YAML and JSON."""
