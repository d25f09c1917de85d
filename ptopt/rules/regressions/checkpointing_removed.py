from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression


class CheckpointingRemoved(Regression):
    """A change keeps activations in memory that were computed again when needed."""

    id = "PTO962"
    name = "checkpointing-removed"
    most_stated = 0.4
    triggers = ("forward", "model", "block")
    measure = re.compile(
        r"gradient_checkpointing_enable\(|\bcheckpoint(_sequential)?\(\s*\w+[\w.]*\s*,|gradient_checkpointing\s*=\s*True|use_checkpoint\s*=\s*True|use_reentrant"
    )
    still = re.compile(r"checkpoint")
    work = re.compile(r"\w\(")
    prior = 0.4
    message = (
        "All activations of these layers then stay in memory until the backward pass, which bounds the batch size. "
        "Keep gradient checkpointing, or make it an option."
    )
    why = (
        "Activations of all layers take memory in proportion to depth; with checkpointing only the inputs of blocks "
        "are kept."
    )
    source = "[PyTorch documentation: torch.utils.checkpoint](https://docs.pytorch.org/docs/stable/checkpoint.html)"
    when_wrong = "memory is no concern, where leaving it out is faster"

    VALID = (
        """
        x = checkpoint(block, x, use_reentrant=False)
        """,
        """
        def forward(self, x):
            # - x = checkpoint(self.block, x)
            x = checkpoint(self.block, x, use_reentrant=False)
            return x
        """,
        """
        def forward(self, x):
            # - x = checkpoint(self.block, x)
            return x
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x):
                # - x = checkpoint(self.block, x)
                x = self.block(x)  # !
                return x
        """),
        Invalid("""
            def build(name):
                model = load(name)
                # - model.gradient_checkpointing_enable()
                return model.cuda()  # !
        """),
        Invalid("""
            def forward(self, x):
                for block in self.blocks:
                    # - x = checkpoint(block, x, use_reentrant=False)
                    x = block(x)  # !
                return x
        """),
    )

    def is_loss(self, loss: Loss) -> bool:
        """What was checkpointed must still be called: `block` of `checkpoint(block, x)`."""
        called = re.search(r"\bcheckpoint(?:_sequential)?\(\s*(\w[\w.]*)", loss.text)
        return called is None or f"{called[1]}(" in loss.place
