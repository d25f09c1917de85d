"""What people did with our comments, and what follows from it."""
