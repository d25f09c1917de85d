"""What makes an optimizer, by its name."""

from __future__ import annotations

import re

_OF_TORCH = re.compile(r"^(torch\.optim|optim)\.(?!lr_scheduler\b|swa_utils\b)(\w+\.)*[A-Z]\w*$")


def is_of_torch(name: str) -> bool:
    """Is it a class of `torch.optim` that steps parameters? `name`: dotted, as its package spells it."""
    return _OF_TORCH.match(name) is not None
