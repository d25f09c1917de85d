"""Back ends: what loads or reaches a model. Heavy libraries are imported by the one that needs them."""
