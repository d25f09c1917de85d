"""What the pages show, as values. Each function takes the ids of the repositories that may be shown, and reads no other."""
