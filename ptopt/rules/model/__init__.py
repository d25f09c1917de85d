"""What models find: rules without a check, which say how far their findings can be trusted."""
