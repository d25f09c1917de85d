"""Where the gradients are clipped by a framework that refuses to do so for an optimizer that unscales them itself: a fused one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptopt.audit.arguments import keyword_value, lightning_argument, lightning_trainers
from ptopt.audit.known import Value
from ptopt.audit.setup import Setup
from ptopt.audit.values import Place

# Its AMP plugin raises in `clip_gradients` for any optimizer with a fused update, with bfloat16, too: first in 1.8.1, still in 2.6.6.
_RAISES_SINCE = "1.8.1"
_MIXED = frozenset({"16", "bf16", "16-mixed", "bf16-mixed"})
_SCALED = frozenset({"16", "16-mixed"})  # Fabric raises only where it has a `GradScaler`


def refuses_fused(setup: Setup) -> tuple[str, Place | None] | None:
    """Why a fused optimizer raises in this training, and where the gradients are clipped; None where it is not known to."""
    if setup.framework == "Lightning":
        return _of_lightning(setup)
    return _of_fabric(setup) if setup.framework == "Fabric" else None


def _of_lightning(setup: Setup) -> tuple[str, Place | None] | None:
    if setup.facts.excludes("lightning", _RAISES_SINCE):
        return None
    precision = _named(lightning_argument(setup, "precision", "32-true"), _MIXED)
    if not precision:
        return None
    value = lightning_argument(setup, "gradient_clip_val", None)
    if value.truth:
        given = value.value if value.known else " or ".join(map(str, value.choices))
        said = f"`gradient_clip_val` is {given}"
        place = value.place or next((setup.place(*trainer) for trainer in lightning_trainers(setup)), None)
    else:
        by_hand = next(_clips(setup), None)
        if by_hand is None:
            return None
        said, place = "`self.clip_gradients`", by_hand
    return f"{said} under `precision` {precision}, for which Lightning raises with a fused optimizer", place


def _of_fabric(setup: Setup) -> tuple[str, Place | None] | None:
    calls = [pair for pair in setup.calls("Fabric") if setup.runs(*pair).truth is not False]
    precision = _named(keyword_value(setup, calls, "precision", Value(True, "32-true")), _SCALED)
    place = next(_clips(setup), None) if precision else None
    if place is None:
        return None
    return (
        f"`clip_gradients` under `precision` {precision}, for which Fabric raises with a fused optimizer",
        place,
    )


def _named(value: Value, wanted: frozenset[str]) -> str:
    """The precision, where all that it may be is among the wanted ones; else ""."""
    every: tuple[Any, ...] = (value.value,) if value.known else value.choices
    names = dict.fromkeys(str(each) for each in every)
    return " or ".join(names) if names and wanted.issuperset(names) else ""


def _clips(setup: Setup) -> Iterator[Place]:
    """The calls of the framework's own function for it."""
    for module, call in setup.calls("clip_gradients"):
        if setup.runs(module, call).truth is not False:
            yield setup.place(module, call)
