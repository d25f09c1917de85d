"""Follows attention weights from the softmax to the product with the values."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ptopt.rules.attention._scores import KEEPS, RESHAPES, is_output_equation, operands
from ptopt.rules.base import SourceFile
from ptopt.rules.shared.uses import uses_of_value
from ptopt.source import work
from ptopt.source.index import FUNCTIONS


@dataclass(slots=True)
class Mixed:
    """What stands between the softmax and the product with the values."""

    product: ast.expr
    value: ast.expr
    dropout: ast.Call | None = None
    gate: ast.expr | None = None
    shared: bool = False  # the weights are used for something else too


def follow(node: ast.expr, file: SourceFile, mixed: Mixed | None = None, depth: int = 0) -> Mixed | None:
    """Where the weights go: the product with the values, or None when they never meet it."""
    work.current().charge(1)  # of two uses of each name, many paths
    state = mixed if mixed is not None else Mixed(node, node)
    parent = file.index.parent(node)
    if depth > 12 or parent is None:
        return None
    if isinstance(parent, ast.expr):
        found = operands(parent, file)
        if found is not None:
            left, right, equation = found
            if left is not node or (equation and not is_output_equation(equation)) or not _is_value(right):
                return None
            state.product, state.value = parent, right
            return state
    if (
        isinstance(parent, ast.Call)
        and parent.args[:1] == [node]
        and "drop" in file.source(parent.func).lower()
    ):
        state.dropout = parent
        return follow(parent, file, state, depth + 1)
    if isinstance(parent, ast.Attribute):
        call = file.index.parent(parent)
        if isinstance(call, ast.Call) and call.func is parent and parent.attr in KEEPS | RESHAPES:
            return follow(call, file, state, depth + 1)
        return None
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
        other = parent.left if parent.right is node else parent.right
        if not isinstance(other, (ast.Name, ast.Attribute)) or "mask" in file.source(other).lower():
            return None
        state.gate = other
        return follow(parent, file, state, depth + 1)
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        return _follow_name(parent, parent.targets[0].id, state, file, depth)
    return None


def _is_value(node: ast.expr) -> bool:
    """A tensor by name, maybe cast or viewed; not something computed on the way."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            if not (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in KEEPS | RESHAPES | {"transpose", "permute"}
            ):
                return False
            node = node.func
        node = node.value
    return isinstance(node, ast.Name)


def _follow_name(assign: ast.Assign, name: str, state: Mixed, file: SourceFile, depth: int) -> Mixed | None:
    function = file.index.function_of(assign)
    if not isinstance(function, FUNCTIONS):
        return None
    uses = []
    for node in uses_of_value(assign, name, file):
        holder = file.index.parent(node)
        of_shape = isinstance(holder, ast.Attribute) and holder.attr in ("shape", "size", "dtype", "device")
        if node.lineno >= assign.lineno and not of_shape:
            uses.append(node)
    result: Mixed | None = None
    for use in uses:
        here = follow(use, file, Mixed(state.product, state.value, state.dropout, state.gate), depth + 1)
        if here is None:
            state.shared = True
        elif result is None:
            result = here
    if result is not None:
        result.shared = result.shared or state.shared
    return result
