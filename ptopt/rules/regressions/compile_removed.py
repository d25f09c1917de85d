from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression


class CompileRemoved(Regression):
    """A change runs code without the compiler that it was compiled with."""

    id = "PTO958"
    name = "compile-removed"
    most_stated = 0.35
    triggers = ("def",)
    measure = re.compile(r"torch\.compile\b|\bcompile_model\(|torch\.jit\.(script|trace)\b|\.compile\(")
    still = re.compile(r"compile|torch\.jit")
    work = re.compile(r"\w")
    prior = 0.35
    message = (
        "The code then runs operation by operation, each with a launch of its own. If it does not compile, "
        "`fullgraph=False` or `dynamic=True` often keeps most of the gain."
    )
    why = "Compiled code fuses pointwise operations and launches far fewer kernels."
    source = "[PyTorch documentation: torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)"
    when_wrong = "the code does not compile, or recompiles too often"

    VALID = (
        """
        model = torch.compile(model)
        """,
        """
        def build(model):
            # - model = torch.compile(model)
            model = torch.compile(model, dynamic=True)
            return model
        """,
        """
        # - @torch.compile
        # - def helper(x):
        # -     return x.relu()
        def other(x):
            return x
        """,
    )
    INVALID = (
        Invalid("""
            # - @torch.compile
            def activation(x):  # !
                return x.sigmoid() * x
        """),
        Invalid("""
            def build(model):
                # - return torch.compile(model.cuda())
                return model.cuda()  # !
        """),
        Invalid("""
            def build(model, device):
                model.to(device)
                # - model = torch.compile(model)
                return model  # !
        """),
    )

    def is_loss(self, loss: Loss) -> bool:
        """`re.compile` and the sources of strings are no models."""
        return not re.search(r"\bre\.compile|import ", loss.text)
