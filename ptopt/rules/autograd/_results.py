"""Is all that is left of a result taken off the graph?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import network_of
from ptopt.rules.shared.uses import uses_of_value
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, own_nodes, walk

METADATA = frozenset({"shape", "device", "dtype", "size", "dim", "ndim"})


def around(node: ast.expr, file: SourceFile) -> Iterator[ast.AST]:
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        yield ancestor


def detach_of(node: ast.expr, file: SourceFile) -> ast.Call | None:
    """The `.detach()` that the value of `node` surely passes through inside its statement."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Call):
            func = ancestor.func
            if child is func and isinstance(func, ast.Attribute) and func.attr in ("detach", "detach_"):
                return ancestor
            if child is not func and not _pure(ancestor, file):
                return None
        elif not isinstance(ancestor, (ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.keyword)):
            return None
    return None


def _pure(call: ast.Call, file: SourceFile) -> bool:
    """A function that only computes a value from its arguments: its result is all that is left of them."""
    qualified = file.imports.qualified(call.func)
    if qualified.startswith("torch."):
        return True
    return (
        isinstance(call.func, ast.Attribute)
        and file.values.is_tensor(call.func.value)
        or bool(network_of(call, file))
    )


def cuts_of(call: ast.Call, file: SourceFile) -> list[ast.Call]:
    """The `.detach()` calls that all uses of the name `call` is bound to pass through; none if one use does not."""
    parent = file.index.parent(call)
    while isinstance(parent, (ast.Attribute, ast.Subscript)):  # `teacher(x).logits`, `teacher(x)[0]`
        parent = file.index.parent(parent)
    if (
        not isinstance(parent, ast.Assign)
        or len(parent.targets) != 1
        or not isinstance(parent.targets[0], ast.Name)
    ):
        return []
    name = parent.targets[0].id
    function = file.index.function_of(call)
    root: ast.AST = function if function is not None else file.tree
    cuts: list[ast.Call] = []
    for use in uses_of_value(parent, name, file):
        holder = file.index.parent(use)
        if isinstance(holder, ast.Attribute) and holder.attr in METADATA:
            continue
        cut = detach_of(use, file)
        if cut is None:
            return []
        cuts.append(cut)
    return [] if cuts and name in _names_of_nested(root) else cuts


@remembered
def _names_of_nested(root: ast.AST) -> frozenset[str]:
    nested = [n for n in own_nodes(root) if isinstance(n, (*FUNCTIONS, ast.Lambda))]
    return frozenset(n.id for inner in nested for n in walk(inner) if isinstance(n, ast.Name))
