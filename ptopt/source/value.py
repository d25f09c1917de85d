"""What is known of a value: its kind, where it lies, and whether it carries a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an expression.

    kind: "tensor" | "tensors" (a sequence of tensors) | "array" | "scalar" | "text" | "list" | "module" |
    "optimizer" | "loader" | "class" | "" (unknown).
    device: "cpu" (known of some values of unknown kind, too) | "moved" (sent to a device that is not literally the CPU) |
    "" (unknown).
    graph: True when autograd history may hang on it, False when it surely does not, None when unknown.
    """

    kind: str = ""
    device: str = ""
    graph: bool | None = None


UNKNOWN = Value()
SCALAR = Value("scalar", "cpu", False)
ON_HOST = Value("", "cpu")


def graph_of(parts: Iterable[Value]) -> bool | None:
    """Of what is made of all of them."""
    graphs = {part.graph for part in parts}
    return True if True in graphs else None if None in graphs else False
