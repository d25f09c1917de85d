"""Inputs that people name in a file, where types and shapes cannot be inferred or should not be guessed.

    {"Model.pooled": {"x": {"shape": ["batch", 16], "dtype": "float32"}, "labels": {"shape": ["batch"], "dtype": "int64",
     "high": 10}, "dim": {"value": -1}}}

A list instead of one object names alternatives. Dimensions that are words take several sizes; the same word, the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptopt.prove.parameters import Choice

_DTYPES = frozenset(
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
)  # those that inputs are made of
_MOST = 1 << 22  # elements of a tensor

Given = Mapping[str, Mapping[str, tuple[Choice, ...]]]  # function -> parameter -> choices


class InputsError(ValueError):
    """A file of inputs that is not as described."""


def read_inputs(path: Path) -> Given:
    """The inputs of a file; raises `InputsError` and OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(symbol): {str(name): _choices(value) for name, value in parameters.items()}
            for symbol, parameters in data.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        detail = str(error) if isinstance(error, InputsError) else "it is no object of objects in JSON"
        raise InputsError(f"{path}: {detail}") from None


def _choices(value: Any) -> tuple[Choice, ...]:
    items = value if isinstance(value, list) else [value]
    if not items:
        raise InputsError("an empty list of alternatives")
    return tuple(map(_choice, items))


def _choice(item: Any) -> Choice:
    if isinstance(item, dict) and item.keys() == {"value"}:
        return {"kind": "value", "value": item["value"]}
    if not isinstance(item, dict) or not {"shape"} <= item.keys() <= {"shape", "dtype", "high"}:
        raise InputsError("an input has `value`, or `shape` with `dtype` and `high`")
    shape, dtype, high = item["shape"], item.get("dtype", "float32"), item.get("high", 2)
    sizes = [size for size in shape if not isinstance(size, str)]
    total = 1
    for size in sizes:
        if type(size) is not int or size < 0:
            raise InputsError("dimensions are numbers from 0, or words")
        total *= max(size, 1)
    if total > _MOST or len(shape) > 8:
        raise InputsError("a tensor is too large")
    if dtype not in _DTYPES or type(high) is not int or high < 1:
        raise InputsError(f"`dtype` is one of {', '.join(sorted(_DTYPES))}; `high` a number from 1")
    return {"kind": "tensor", "dtype": dtype, "shape": shape, "high": high, "within": dtype}
