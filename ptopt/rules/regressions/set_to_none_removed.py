from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression


class SetToNoneRemoved(Regression):
    """A change fills gradients with zeros instead of dropping them."""

    id = "PTO966"
    name = "set-to-none-removed"
    most_stated = 0.5
    triggers = ("zero_grad",)
    measure = re.compile(r"set_to_none\s*=\s*True|\.grad\s*=\s*None")
    work = re.compile(r"zero_grad\(")
    prior = 0.5
    message = (
        "Before torch 2.0, `zero_grad()` writes zeros into each gradient, and the next backward pass reads and adds "
        "to them. Keep `set_to_none=True`."
    )
    why = "Dropping gradients saves writing zeros to all of them, and reading them again to accumulate."
    source = (
        "[PyTorch documentation: "
        "Optimizer.zero_grad](https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html)"
    )
    when_wrong = "the gradients are read between the steps"

    VALID = (
        """
        optimizer.zero_grad(set_to_none=True)
        """,
        """
        def step(optimizer, flag):
            # - optimizer.zero_grad(set_to_none=True)
            optimizer.zero_grad(set_to_none=True and flag)
        """,
        """
        def step(optimizer):
            # - optimizer.zero_grad(set_to_none=True)
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            def step(optimizer):
                # - optimizer.zero_grad(set_to_none=True)
                optimizer.zero_grad(set_to_none=False)  # !
        """),
        Invalid("""
            def step(model):
                # - model.zero_grad(set_to_none=True)
                model.zero_grad(set_to_none=False)  # !
        """),
        Invalid("""
            def step(optimizer, loss):
                # - optimizer.zero_grad(set_to_none=True)
                optimizer.zero_grad(set_to_none=False)  # !
                loss.backward()
        """),
    )

    def is_loss(self, loss: Loss) -> bool:
        """Without the argument it is the default from torch 2.0 on; that project facts rule out older versions is not sure."""
        old = loss.file.facts.at_least("torch", "2.0") is False
        return old or "set_to_none=False" in loss.place.replace(" ", "")
