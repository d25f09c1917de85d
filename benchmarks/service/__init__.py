"""How fast the service takes deliveries, and how soon a review is posted."""
