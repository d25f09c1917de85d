from __future__ import annotations

import re

from ptopt.findings import TEXTBOOK
from ptopt.rules.base import Invalid, SourceFile
from ptopt.rules.regressions._base import Loss, Regression
from ptopt.rules.shared.precision import chooses_precision, is_chosen_elsewhere

_SCALES = re.compile(r"scaler\w*\.scale\(", re.I)
_AUTOCAST = re.compile(rb"autocast")


class AutocastRemoved(Regression):
    """A change runs in full precision what ran in mixed precision."""

    id = "PTO959"
    name = "autocast-removed"
    triggers = ("model", "forward", "loss")
    measure = re.compile(r"\bautocast\b|\bGradScaler\(")
    still = re.compile(r"autocast|precision|accelerat|fabric|bfloat16|float16|\.half\(")
    work = re.compile(r"\w\(")
    prior = 0.45
    message = (
        "Matrix products and convolutions then run in float32, without the tensor cores unless TF32 is allowed, and "
        "activations take twice the memory. Keep `torch.autocast`; bfloat16 needs no scaler."
    )
    why = (
        "Tensor cores multiply float16 and bfloat16 several times as fast as float32, and activations take half the "
        "memory."
    )
    source = (
        "[PyTorch documentation: automatic mixed precision](https://docs.pytorch.org/docs/stable/amp.html)"
    )
    when_wrong = "the results were not accurate enough, or the caller turns it on"

    VALID = (
        """
        with torch.autocast("cuda"):
            loss = model(batch).mean()
        """,
        """
        def step(model, batch):
            # - with torch.cuda.amp.autocast():
            # -     return model(batch)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return model(batch)
        """,
        """
        def step(model, batch):
            # - with torch.autocast("cuda", enabled=False):
            # -     return model(batch)
            return model(batch)
        """,
    )
    INVALID = (
        Invalid("""
            def step(model, batch):
                # - with torch.autocast("cuda"):
                # -     return model(batch)
                return model(batch)  # !
        """),
        Invalid("""
            def step(model, batch, loss_of):
                # - with autocast(dtype=torch.bfloat16):
                # -     loss = loss_of(model(batch))
                loss = loss_of(model(batch))  # !
                loss.backward()
        """),
        Invalid("""
            # - @torch.autocast("cuda", dtype=torch.float16)
            def predict(model, batch):  # !
                return model(batch)
        """),
    )

    def confidence(self, loss: Loss) -> float:
        """Textbook: the step of a training on an accelerator, where nothing in the project chooses a precision any more."""
        file = loss.file
        step = file.context.training_step(loss.node)
        if step is None or not loss.text.lstrip().startswith("with") or not file.uses_accelerator:
            return self.prior
        if _SCALES.search(loss.measures) and not _autocasts_in_forward(file):
            return TEXTBOOK  # a loss that is still scaled shows that no other precision was chosen
        return self.prior if chooses_precision(file) or is_chosen_elsewhere(file) else TEXTBOOK

    def is_loss(self, loss: Loss) -> bool:
        """Switching it off in one place is no measure, nor is an import."""
        return not re.search(r"enabled\s*=\s*False|import ", loss.text)


def _autocasts_in_forward(file: SourceFile) -> bool:
    """Does a file that defines a network hold autocast: around its `forward`, or in it?"""
    own = "autocast" in file.text and "def forward(" in file.text
    return own or file.repository.matches(_AUTOCAST, b"def forward(", file.path)
