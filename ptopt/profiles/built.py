"""Where the code builds what the advice of a profile is about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Built:
    """Places as `path:line`, in order."""

    optimizers: tuple[str, ...] = ()  # that could be fused, and are not asked to be
    loaders: tuple[str, ...] = ()


NOT_KNOWN = Built()
