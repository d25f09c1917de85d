"""What a parameter may be given, from its annotation, its default and its use: choices, the likeliest first."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ptopt.prove.reasons import Reason, RefusedError

# Choices are plain values for the runner: {"kind": "default"}, which leaves it out, {"kind": "tensor", "dtype": NAME}, {"kind": "array", ...}, {"kind": "list" | "tuple",
# "dtype": NAME} of tensors, {"kind": "value", "value": literal}, {"kind": "dtype", "value": NAME}.
Choice = dict[str, Any]

_DTYPES = ("float32", "int64", "bool")
_TENSORS = {
    "Tensor": _DTYPES, "FloatTensor": ("float32",), "DoubleTensor": ("float64",), "HalfTensor": ("float16",),
    "LongTensor": ("int64",), "IntTensor": ("int32",), "BoolTensor": ("bool",), "Float": ("float32",), "Int": ("int64",),
    "Bool": ("bool",), "Shaped": _DTYPES, "Float16": ("float16",), "BFloat16": ("bfloat16",), "Float32": ("float32",),
    "Float64": ("float64",), "Int32": ("int32",), "Int64": ("int64",),
}  # fmt: skip
_WITHIN = {"Float": "floating", "Int": "signed", "Bool": "bool", "Shaped": "",  # jaxtyping's
           **{name: name.lower() for name in ("Float16", "BFloat16", "Float32", "Float64", "Int32", "Int64")}}  # fmt: skip
_ARRAYS = ("ndarray", "NDArray")
_LETTERS = "abcd"
_NONE: Mapping[str, tuple[Choice, ...]] = MappingProxyType({})
_SEQUENCES = {"list": "list", "List": "list", "Sequence": "list", "Iterable": "list", "Collection": "list",
              "tuple": "tuple", "Tuple": "tuple"}  # fmt: skip
_VALUES: dict[str, tuple[Any, ...]] = {
    "int": (2, 1, 0, 3, -1, 4, 5, 7, 8, -2), "float": (0.5, 2.0, 0.0, -1.0), "bool": (True, False), "None": (None,), "NoneType": (None,),
}  # fmt: skip

_NAMED: dict[str, list[Choice]] = {  # what names of parameters without an annotation stand for, always
    "device": [{"kind": "value", "value": "cpu"}],
    "dtype": [{"kind": "dtype", "value": "float32"}, {"kind": "dtype", "value": "float64"}],
    "dim": [{"kind": "value", "value": value} for value in (-1, 0, 1)],
    "axis": [{"kind": "value", "value": value} for value in (-1, 0, 1)],
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the function; one that is `named` is given by its name."""

    name: str
    choices: tuple[Choice, ...]
    named: bool = False


def parameters_of(
    function: ast.FunctionDef, given: Mapping[str, tuple[Choice, ...]] = _NONE
) -> tuple[Parameter, ...]:
    """The parameters with what they may be given; raises `RefusedError` where that is neither `given` nor inferred."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg:
        raise RefusedError(Reason.PARAMETERS, "`*` or `**` parameters")
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    found = [_parameter(a, d, False, given) for a, d in zip(positional, defaults, strict=True)]
    found += [
        _parameter(a, d, True, given)
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return with_letters(found)


def _parameter(
    argument: ast.arg, default: ast.expr | None, named: bool, given: Mapping[str, tuple[Choice, ...]]
) -> Parameter:
    if argument.arg in given:
        return Parameter(argument.arg, given[argument.arg], named)
    choices: list[Choice] = []
    if default is not None:
        choices.append({"kind": "default"})
    if argument.annotation is not None:
        choices += _of_annotation(argument.annotation)
    elif argument.arg in _NAMED:
        choices += _NAMED[argument.arg]
    elif default is None:
        choices += [*_tensors(_DTYPES), _value(2), {"kind": "list", "dtype": "float32"}, _value(1)]
    elif isinstance(default, ast.Constant) and default.value is not None:
        choices += [_value(v) for v in _VALUES.get(type(default.value).__name__, ())]
    elif isinstance(default, ast.Constant):
        choices += _tensors(_DTYPES)
    unique = [choice for i, choice in enumerate(choices) if choice not in choices[:i]]
    if not unique:
        raise RefusedError(Reason.PARAMETERS, f"`{argument.arg}`")
    return Parameter(argument.arg, tuple(unique), named)


def _of_annotation(node: ast.expr) -> list[Choice]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _of_annotation(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return []
    if isinstance(node, ast.Constant):
        return [_value(None)] if node.value is None else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_of_annotation(node.left), *_of_annotation(node.right)]
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _of_generic(_last(node.value), inner)
    name = _last(node)
    if name in _TENSORS:
        return _tensors(_TENSORS[name])
    if name in _ARRAYS:
        return [{"kind": "array", "dtype": dtype} for dtype in _DTYPES]
    if name == "dtype":
        return [{"kind": "dtype", "value": dtype} for dtype in ("float32", "float64")]
    if name == "device":
        return [{"kind": "value", "value": "cpu"}]
    return [_value(value) for value in _VALUES.get(name, ())]


def _of_generic(name: str, inner: Sequence[ast.expr]) -> list[Choice]:
    if name == "Optional":
        return [*_of_annotation(inner[0]), _value(None)]
    if name == "Union":
        return [choice for item in inner for choice in _of_annotation(item)]
    if name == "Annotated":
        return _of_annotation(inner[0])
    if name in _WITHIN:
        return _of_jaxtyping(name, inner)
    if name == "Literal":
        return [_value(item.value) for item in inner if isinstance(item, ast.Constant)]
    if name not in _SEQUENCES:
        return []
    kind = _SEQUENCES[name]
    of = _of_annotation(inner[0])
    tensors = [choice["dtype"] for choice in of if choice["kind"] == "tensor"]
    if tensors:
        return [{"kind": kind, "dtype": dtype} for dtype in tensors]
    values = [choice["value"] for choice in of if choice["kind"] == "value"]
    return [_value(values[:2]), _value(values[:1]), _value([values[0]] * 3), _value([])] if values else []


def _of_jaxtyping(name: str, inner: Sequence[ast.expr]) -> list[Choice]:
    """`Float[Tensor, "batch 3"]`: the type is of this kind, and dimensions of one name have one size."""
    array = "array" if _last(inner[0]) in _ARRAYS else "tensor"
    choices: list[Choice] = [{"kind": array, "dtype": d, "within": _WITHIN[name]} for d in _TENSORS[name]]
    text = inner[1].value if len(inner) > 1 and isinstance(inner[1], ast.Constant) else None
    words = text.split() if isinstance(text, str) else ["..."]
    if all(word.isidentifier() or word.isdecimal() for word in words):
        shape = [int(word) if word.isdecimal() else word for word in words]
        choices = [{**choice, "shape": shape} for choice in choices]
    return choices


def with_letters(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """The parameters with letters for the names of dimensions; raises `RefusedError` where there are more than four."""
    names = [n for p in parameters for c in p.choices for n in c.get("shape", ()) if isinstance(n, str)]
    letters = dict(zip(dict.fromkeys(names), _LETTERS, strict=False))
    if len(letters) < len(set(names)):
        raise RefusedError(Reason.PARAMETERS, "they have many dimensions")

    def renamed(choice: Choice) -> Choice:
        return (
            {**choice, "shape": [letters.get(n, n) for n in choice["shape"]]} if "shape" in choice else choice
        )

    return tuple(Parameter(p.name, tuple(map(renamed, p.choices)), p.named) for p in parameters)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _tensors(dtypes: Sequence[str]) -> list[Choice]:
    return [{"kind": "tensor", "dtype": dtype} for dtype in dtypes]


def _value(value: Any) -> Choice:
    return {"kind": "value", "value": value}
