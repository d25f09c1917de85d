"""Facts about the repository under review: which versions of its libraries it runs with."""
