"""Did two processes give the same? What they sent is data of strangers: everything is checked before it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ptopt.prove.inside.layout import FLOATS, INTEGERS, Tensor
from ptopt.prove.inside.wire import BrokenError, Message

# Relative and absolute; another order of the same sums stays within these.
TOLERANCES = {"float64": (1e-7, 1e-9), "complex128": (1e-7, 1e-9), "float32": (1e-4, 1e-5), "complex64": (1e-4, 1e-5),
              "float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)}  # fmt: skip
_DTYPES = frozenset({*FLOATS, *INTEGERS, "bool", "complex64", "complex128"})
_DEPTH = 20
_GRADIENT = "a gradient"
_INVALID = frozenset({"IndexError", "RuntimeError", "TypeError", "ValueError"})
_OF_THE_SANDBOX = frozenset(
    {"ImportError", "ModuleNotFoundError", "PermissionError", "OSError", "MemoryError", "SystemError"}
)


class NotComparableError(Exception):
    """A result of a type that is not compared, by its name."""


class _Reader:
    """Takes the nodes of one message in order, with the bytes of its tensors."""

    def __init__(self, message: Message, inputs: Sequence[Tensor]) -> None:
        self.head = message[0]
        self.dtypes = [tensor.dtype for tensor in inputs]
        # The error of a sum grows with its terms, however small what is left of it.
        self.terms = math.sqrt(max((math.prod(tensor.sizes) for tensor in inputs), default=1)) or 1.0
        self._blobs = iter(message[1])

    def nodes(self, name: str) -> list[Any]:
        found = self.head.get(name)
        if not isinstance(found, list):
            raise BrokenError
        return found

    def tensor(self, node: dict[str, Any]) -> torch.Tensor:
        dtype, shape = node.get("dtype"), node.get("shape")
        blob = next(self._blobs, None)
        if dtype not in _DTYPES or not isinstance(shape, list) or blob is None or len(shape) > 60:
            raise BrokenError
        if not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
            raise BrokenError
        kind = getattr(torch, dtype)
        if math.prod(shape) * kind.itemsize != len(blob):
            raise BrokenError
        if not blob:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(bytearray(blob), dtype=torch.uint8).view(kind).reshape(shape)


def difference(before: Message, after: Message, inputs: Sequence[Tensor]) -> str:
    """What differs between two answers to an input of these tensors, in words; "" when nothing does.

    The same exception of both sides is no difference, nor are two by which torch refuses an input. Results are compared as exactly as the least exact type allows.

    Raises `NotComparableError`, and `BrokenError` when a message is not one.
    """
    errors = [error_of(message) for message in (before, after)]
    ours = next((error for error in errors if error in _OF_THE_SANDBOX), "")
    if ours:
        raise NotComparableError(f"{ours} in the sandbox")
    if errors != ["", ""]:
        if errors[0] == errors[1] or _INVALID.issuperset(errors):
            return ""
        words = [f"raises {error}" if error else "raises nothing" for error in errors]
        return f"the fix {words[1]}, the code before {words[0]}"
    a, b = _Reader(before, inputs), _Reader(after, inputs)
    found = _differ(a, b, a.head.get("result"), b.head.get("result"), "the result", 0)
    for name, what in (("inputs", "an input after the call"), ("gradients", _GRADIENT)):
        one, other = a.nodes(name), b.nodes(name)
        if found:
            return found
        if len(one) != len(other):
            return f"the number of {name}"
        for x, y in zip(one, other, strict=True):
            found = found or _differ(a, b, x, y, what, 0)
    return found or ("the random numbers drawn" if a.head.get("drawn") != b.head.get("drawn") else "")


def results_differ(before: Message, after: Message, count: int, inputs: Sequence[Tensor]) -> str:
    """The same for the results of a timed block of `count` calls."""
    a, b = _Reader(before, inputs), _Reader(after, inputs)
    one, other = a.nodes("results"), b.nodes("results")
    if len(one) != count or len(other) != count:
        return "the number of results"
    return next(
        (d for x, y in zip(one, other, strict=True) if (d := _differ(a, b, x, y, "the result", 0))), ""
    )


def error_of(message: Message) -> str:
    """The name of the exception that an answer is; "" for none."""
    error = message[0].get("error", "")
    if not isinstance(error, str):
        raise BrokenError
    return error[:60] if error.isidentifier() or not error else "an exception"


def _differ(a: _Reader, b: _Reader, x: Any, y: Any, what: str, depth: int) -> str:
    if not isinstance(x, dict) or not isinstance(y, dict) or depth > _DEPTH:
        raise BrokenError
    if "other" in (x.get("t"), y.get("t")):
        kind = x.get("type") if x.get("t") == "other" else y.get("type")
        raise NotComparableError(str(kind)[:60] if str(kind).isidentifier() else "")
    if x.get("t") != y.get("t") or x.get("type") != y.get("type"):
        return f"the type of {what}"
    if x.get("t") == "tensor":
        return _tensors_differ(a, b, x, y, what)
    if x.get("t") == "items":
        one, other = x.get("items"), y.get("items")
        if not isinstance(one, list) or not isinstance(other, list):
            raise BrokenError
        if len(one) != len(other):
            return f"the length of {what}"
        # All are read, so that the bytes of the next value are at hand.
        found = [_differ(a, b, p, q, what, depth + 1) for p, q in zip(one, other, strict=True)]
        return next(filter(None, found), "")
    if x.get("t") == "numbers":
        return _numbers_differ(a, b, x, y, what)
    if x.get("t") == "float":
        return "" if _close(x.get("value"), y.get("value"), a) else f"the value of {what}"
    return "" if x.get("value") == y.get("value") else f"the value of {what}"


def _close(a: Any, b: Any, reader: _Reader) -> bool:
    try:
        one, other = float.fromhex(a), float.fromhex(b)
    except (TypeError, ValueError):
        raise BrokenError from None
    rtol, atol = _tolerance("float32", reader)
    return (
        (math.isnan(one) and math.isnan(other))
        or one == other
        or math.isclose(one, other, rel_tol=rtol, abs_tol=atol)
    )


def _numbers_differ(a: _Reader, b: _Reader, x: dict[str, Any], y: dict[str, Any], what: str) -> str:
    """The same for long lists of numbers of one type, which come as bytes."""
    p, q = x.get("items"), y.get("items")
    if not isinstance(p, dict) or not isinstance(q, dict):
        raise BrokenError
    one, other = a.tensor(p), b.tensor(q)
    if x.get("of") != y.get("of") or one.dtype != other.dtype:
        return f"the type of {what}"
    if one.shape != other.shape:
        return f"the length of {what}"
    rtol, atol = _tolerance("float32", a) if one.is_floating_point() else (0.0, 0.0)
    return "" if torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True) else f"the values of {what}"


def _tolerance(dtype: str, reader: _Reader) -> tuple[float, float]:
    if dtype not in TOLERANCES:
        return 0.0, 0.0
    rtol, atol = max(TOLERANCES.get(one, (0.0, 0.0)) for one in (dtype, *reader.dtypes))
    return rtol, atol * reader.terms


def _tensors_differ(a: _Reader, b: _Reader, x: dict[str, Any], y: dict[str, Any], what: str) -> str:
    one, other = a.tensor(x), b.tensor(y)
    checks = (
        (x.get("array") != y.get("array"), "type"),
        (one.dtype != other.dtype, "dtype"),
        (one.shape != other.shape, "shape"),
        (x.get("grad") != y.get("grad"), "requires_grad"),
        (x.get("alias") != y.get("alias"), "memory"),
        (what != _GRADIENT and bool(x.get("contiguous")) and not y.get("contiguous"), "contiguity"),
    )
    name = next((word for differs, word in checks if differs), "")
    if name == "dtype":
        return f"the dtype of {what} ({x['dtype']}, with the fix {y['dtype']})"
    if name == "memory":
        return f"what shares the memory of {what}"
    if name:
        return f"the {name} of {what}"
    rtol, atol = _tolerance(x["dtype"], a)
    same = torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)
    return "" if same else f"the values of {what}"
