"""The fine-tuned model of a review: its prompts, its answers, and the back ends that run it."""
