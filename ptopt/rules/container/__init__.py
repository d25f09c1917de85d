"""Rules about Dockerfiles and Compose files."""
