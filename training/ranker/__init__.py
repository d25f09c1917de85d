"""Learns, from comments that people judged, which findings are worth a comment."""
