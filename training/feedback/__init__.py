"""From what people did with our comments to rows that a recipe learns from."""

MOST_PER_ORGANISATION = 20  # comments of a rule in all repositories of an account, in a dataset
