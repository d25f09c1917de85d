"""Benchmarks: how right ptopt is, how fast it is, and what its rules are worth. Each is a command."""
