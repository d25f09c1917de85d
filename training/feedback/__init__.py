"""From what people did with our comments to rows that a recipe learns from."""
