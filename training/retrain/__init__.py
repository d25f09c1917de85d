"""Trains the ranker and the judge again, from what people did about comments, and puts the result to a trial."""
