"""How fast ptopt is on trees of real files."""
