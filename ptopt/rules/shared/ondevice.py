"""Tensors that the file puts on a device before they become the items of a data set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.shared.flow import assigned
from ptopt.rules.shared.moves import move_of
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile

_MOST_STEPS = 8  # from a name to what it was made of
_JOINS = frozenset("cat concat concatenate stack hstack vstack".split())
_LEAVES = frozenset("cpu numpy tolist item".split())  # methods whose result lies on the host


def lies_on_device(value: ast.expr, file: SourceFile, steps: int = _MOST_STEPS) -> bool:
    """Is the value sent to a device, or made of what is: joined of a list that took such tensors, a part, a method's result?"""
    if steps == 0:
        return False
    if file.values.of(value).device:
        return file.values.of(value).device == "moved"
    if isinstance(value, ast.Name):
        made = assigned(value, file)
        if isinstance(made, (ast.List, ast.ListComp)) or (isinstance(made, ast.Call) and _is_list(made)):
            return _all_on_device(list(_elements(made, value, file)), file, steps)
        return made is not None and lies_on_device(made, file, steps - 1)
    if isinstance(value, (ast.Attribute, ast.Subscript)):
        return lies_on_device(value.value, file, steps - 1)
    if not isinstance(value, ast.Call):
        return False
    if move_of(value, file) is not None:
        return True
    root, _, name = file.imports.qualified(value.func).rpartition(".")
    if root == "torch":
        if name not in _JOINS or not value.args:
            return False
        joined = value.args[0]
        parts = joined.elts if isinstance(joined, (ast.List, ast.Tuple)) else [joined]
        return _all_on_device(parts, file, steps)
    if not isinstance(value.func, ast.Attribute) or value.func.attr in (*_LEAVES, "to"):
        return False
    return lies_on_device(value.func.value, file, steps - 1)


def _all_on_device(parts: list[ast.expr], file: SourceFile, steps: int) -> bool:
    return bool(parts) and all(lies_on_device(part, file, steps - 1) for part in parts)


def _is_list(call: ast.Call) -> bool:
    return last_name(call.func) == "list" and not call.args


def _elements(made: ast.expr, name: ast.Name, file: SourceFile) -> Iterator[ast.expr]:
    """What the list holds when it is read: as it is written, and what the function appends before."""
    if isinstance(made, ast.List):
        yield from made.elts
    elif isinstance(made, ast.ListComp):
        yield made.elt
    for call in file.calls.calls_in(file.index.function_of(name)):
        held = call.func.value if isinstance(call.func, ast.Attribute) else None
        if (
            isinstance(held, ast.Name)
            and held.id == name.id
            and last_name(call.func) == "append"
            and len(call.args) == 1
            and made.lineno <= call.lineno < name.lineno
        ):
            yield call.args[0]
