from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Loss, Regression

_FOREACH = re.compile(r"\bforeach\s*=")
_FOREACH_OFF = re.compile(r"\bforeach\s*=\s*False")
_CLASS = re.compile(r"\bFused\w+")
_MORE_KERNELS = (
    "The update then takes more kernels, which read the parameters and their states more than once."
)


class FusedOptimizerRemoved(Regression):
    """A change lets the optimizer update parameters one kernel at a time."""

    id = "PTO961"
    name = "fused-optimizer-removed"
    most_stated = 0.5
    triggers = ("Adam", "SGD", "optim")
    measure = re.compile(
        r"\b(fused|foreach)\s*=\s*(?!False|None)\w+|FusedAdam|FusedLAMB|[\"']fused[\"']\s*:\s*True"
    )
    still = re.compile(r"\bfused\s*=\s*(?!False|None)\w|foreach\s*=\s*True|Fused")
    work = re.compile(r"Adam|SGD|optim|Lion|RMS")
    prior = 0.5
    message = f"{_MORE_KERNELS} Keep `fused=True`."
    why = "A fused optimizer updates all parameters in a few kernels and reads each of them once."
    source = (
        "[PyTorch documentation: torch.optim.AdamW, "
        "fused](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html)"
    )
    when_wrong = "some parameters are not floating point on the accelerator, or a wrapper does not support it"

    VALID = (
        """
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        """,
        """
        def build(parameters, cuda):
            # - return torch.optim.AdamW(parameters, fused=True)
            return torch.optim.AdamW(parameters, fused=cuda)
        """,
        """
        def build(model):
            # - return torch.optim.AdamW(model.parameters(), fused=True)
            return model
        """,
        """
        def build(parameters):
            # - return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)
            return torch.optim.AdamW(parameters, lr=1e-3)
        """,
    )
    INVALID = (
        Invalid("""
            def build(parameters):
                # - return torch.optim.AdamW(parameters, lr=1e-3, fused=True)
                return torch.optim.AdamW(parameters, lr=1e-3)  # !
        """),
        Invalid("""
            def build(parameters):
                # - return FusedAdam(parameters, lr=1e-3)
                return torch.optim.Adam(parameters, lr=1e-3)  # !
        """),
        Invalid("""
            def build(parameters):
                return torch.optim.AdamW(
                    parameters,
                    # - fused=True,
                    lr=1e-3,  # !
                )
        """),
        Invalid("""
            def build(parameters):
                # - return torch.optim.AdamW(parameters, lr=1e-3, foreach=True)
                return torch.optim.AdamW(parameters, lr=1e-3, foreach=False)  # !
        """),
    )

    def is_loss(self, loss: Loss) -> bool:
        """Without `foreach=True` torch takes the same update on CUDA by itself, unless it is switched off."""
        return not _FOREACH.search(loss.text) or _FOREACH_OFF.search(loss.measures) is not None

    def said(self, loss: Loss) -> str:
        if _FOREACH.search(loss.text):
            return "The optimizer then updates the parameters one by one, with several kernels for each. Keep `foreach=True`."
        name = _CLASS.search(loss.text)
        return (
            f"{_MORE_KERNELS} Keep `{name[0]}`, or pass `fused=True` to that of torch."
            if name
            else self.message
        )
