"""One input: the arguments of a call, as nodes of JSON, over the bytes of their storages, and words that describe it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Node = dict[str, Any]

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
WITHIN = {
    "floating": FLOATS, "signed": INTEGERS[:4], **{name: (name,) for name in (*FLOATS, *INTEGERS, "bool")}
}  # fmt: skip # what an annotation limits a tensor to


@dataclass
class Case:
    """The arguments of one call. `what` is said of it where the two sides differ."""

    args: list[tuple[str, bool, Node]]
    blobs: list[bytes]
    what: str

    def header(self, do: str) -> dict[str, Any]:
        return {"do": do, "args": self.args}


@dataclass
class Tensor:
    """A tensor before it has bytes: `sizes` of its dimensions, and how it lies in memory."""

    dtype: str
    sizes: tuple[int, ...]
    layout: str = "contiguous"  # | "transposed" | "strided" | "expanded"
    fill: str = "normal"  # see `_values`
    grad: bool = False
    array: bool = False
    within: str = ""  # a key of `WITHIN`; "" for any type
    high: int = 2  # integers are below
    same_as: int | None = None  # lies in the memory of this tensor, by its number in the call

    def __str__(self) -> str:
        extra = [self.layout] * (self.layout != "contiguous") + [self.fill] * (self.fill != "normal")
        extra += ["requires grad"] * self.grad
        return f"{self.dtype}{list(self.sizes)}{''.join(f', {word}' for word in extra)}"


@dataclass
class Call:
    """The arguments of a call before their tensors have bytes."""

    args: list[tuple[str, bool, Any]]  # name, given by name, and a Tensor, a list or tuple of them, or a Node
    note: str = ""
    tensors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = [t for _, _, value in self.args for t in _within(value)]


def _within(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else []


def case_of(call: Call, random: torch.Generator) -> Case:
    """The call with values: the same generator gives the same ones."""
    blobs: list[bytes] = []
    nodes: list[Node] = []
    for tensor in call.tensors:
        if tensor.same_as is not None:
            nodes.append(dict(nodes[tensor.same_as]))
            continue
        strides, count, offset = _strides(tensor)
        blobs.append(_bytes(_values(tensor, count, random)))
        nodes.append(
            {"t": "tensor", "storage": len(blobs) - 1, "dtype": tensor.dtype, "shape": list(tensor.sizes),
             "strides": strides, "offset": offset, "grad": tensor.grad, "array": tensor.array}
        )  # fmt: skip
    remaining = iter(nodes)

    def node(value: Any) -> Node:
        if isinstance(value, Tensor):
            return next(remaining)
        if isinstance(value, (list, tuple)):
            return {"t": type(value).__name__, "items": [next(remaining) for _ in value]}
        return dict(value)

    args = [(name, by_name, node(value)) for name, by_name, value in call.args]
    return Case(args, blobs, described(call))


def described(call: Call) -> str:
    words = []
    for name, _, value in call.args:
        if isinstance(value, (list, tuple)):
            words.append(f"{name} {type(value).__name__} of {len(value)}{f' {value[0]}' if value else ''}")
        elif isinstance(value, Tensor):
            words.append(f"{name} {value}")
        elif value["t"] != "default":
            words.append(f"{name}={value['value']!r}")
    return "; ".join([*words, *([call.note] if call.note else [])])[:300]


def _strides(tensor: Tensor) -> tuple[list[int], int, int]:
    """Strides, elements of the storage, offset."""
    sizes = tensor.sizes
    count = 1
    for size in sizes:
        count *= size
    if tensor.layout == "expanded" and sizes:
        inner = _dense(sizes[1:])
        return [0, *inner], (count // sizes[0] if sizes[0] else 0), 0
    if tensor.layout == "transposed":
        return list(reversed(_dense(sizes[::-1]))), count, 0
    if tensor.layout == "strided":
        return [2 * stride for stride in _dense(sizes)], 2 * count + 1, 1
    return _dense(sizes), count, 0


def _dense(sizes: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def _values(tensor: Tensor, count: int, random: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype)
    if tensor.dtype == "bool":
        return torch.rand(count, generator=random) < 0.5
    if tensor.dtype in INTEGERS:
        low, high = {"negative": (-2, 2), "zeros": (0, 1), "wide": (0, 100), "three": (0, 3)}.get(
            tensor.fill, (0, 2)
        )
        if tensor.dtype == "uint8":
            low = max(low, 0)
        return torch.randint(low, high, (count,), generator=random).to(dtype)
    values = _normal(count, random)
    if tensor.fill == "zeros":
        values.zero_()
    elif tensor.fill == "ties":
        values = values.sign()
    elif tensor.fill == "large":
        values = values * 4
    elif (
        tensor.fill == "apart"
    ):  # further than the exponents of float32 reach: whole numbers, whose sums are exact
        values = torch.where(values > 0, 0.0, -200.0)
    elif tensor.fill == "positive":
        values = values.abs() + 0.01
    elif tensor.fill in ("nan", "inf", "-inf") and count:
        at = torch.randint(0, count, (1,), generator=random)
        values[at] = float(tensor.fill)
    return values.to(dtype)


@functools.cache
def _pool() -> torch.Tensor:
    return torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))


def _normal(count: int, random: torch.Generator) -> torch.Tensor:
    """A piece of the pool that the generator chooses: drawing numbers anew would take most of the time."""
    pool = _pool()
    if count > len(pool) // 2:
        return torch.randn(count, generator=random)
    start = int(torch.randint(0, len(pool) - count, (1,), generator=random))
    return pool[start : start + count].clone()


def _bytes(values: torch.Tensor) -> bytes:
    return bytes(values.contiguous().view(torch.uint8).numpy().tobytes()) if values.numel() else b""
