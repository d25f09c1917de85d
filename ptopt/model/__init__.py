"""The fine-tuned reviewer: what it is shown, what it may say, and the back ends that run it."""
