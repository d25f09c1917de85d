"""How right ptopt is on labelled real commits."""
