"""How good a judge or an adviser is: on held-out projects of a dataset, and on labelled real commits."""
