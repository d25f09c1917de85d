"""The GitHub Action: one event in, a review or an answer out."""
