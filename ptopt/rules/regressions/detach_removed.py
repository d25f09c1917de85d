from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression


class DetachRemoved(Regression):
    """A change keeps a value together with the graph that computed it."""

    id = "PTO963"
    name = "detach-removed"
    most_stated = 0.5
    triggers = ("append", "loss", "self")
    measure = re.compile(r"\.(detach|item)\(\)|\.data\b(?!\.| import)")
    still = re.compile(r"\.(detach|item|cpu|tolist|numpy)\(")
    work = re.compile(r"\.append\(|\+=|\[.*\]\s*=|self\.\w+\s*=|return ")
    prior = 0.5
    message = (
        "The value then keeps its whole graph alive, with the activations in it, for as long as it is stored. Keep "
        "`.detach()` before the store."
    )
    why = (
        "A stored tensor that carries a graph holds every activation that it was computed from; memory grows from "
        "step to step."
    )
    source = (
        "[PyTorch FAQ: my model reports out of memory](https://docs.pytorch.org/docs/stable/notes/faq.html)"
    )
    when_wrong = "the stored value is backpropagated later, or was computed without a graph"

    VALID = (
        """
        losses.append(loss.detach())
        """,
        """
        def step(losses, loss):
            # - losses.append(loss.item())
            losses.append(loss.detach())
            loss.backward()
        """,
        """
        def step(x):
            # - y = x.detach()
            y = x
            return y
        """,
    )
    INVALID = (
        Invalid("""
            def step(losses, loss):
                loss.backward()
                # - losses.append(loss.detach())
                losses.append(loss)  # !
        """),
        Invalid("""
            def run(model, loader):
                total = 0
                for batch in loader:
                    loss = model(batch).mean()
                    loss.backward()
                    # - total += loss.item()
                    total += loss  # !
                return total
        """),
        Invalid("""
            class Memory:
                def push(self, value):
                    # - self.values[self.at] = value.detach()
                    self.values[self.at] = value  # !
        """),
    )

    def is_loss(self, loss: Loss) -> bool:
        """The line must be there again, the call left out, and must store the value."""
        without = re.sub(r"\s+", "", self.measure.sub("", loss.text))
        stores = re.search(r"\.append\(|\+=|\]\s*=[^=]|self\.\w+\s*=[^=]", loss.text)
        if stores is None or loss.file.context.grad_off(loss.node):
            return False
        return any(re.sub(r"\s+", "", loss.file.line(number)).startswith(without) for number in loss.added)
