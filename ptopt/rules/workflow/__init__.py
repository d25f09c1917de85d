"""Rules about GitHub workflows."""
