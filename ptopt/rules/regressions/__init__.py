"""Regressions: a change takes out a measure that made the code fast."""
