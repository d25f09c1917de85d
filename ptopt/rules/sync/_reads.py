"""Ways to read a tensor back to Python."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile, method_call

TO_HOST = ("cpu", "numpy", "tolist")


def tensor_of_item(node: ast.AST, file: SourceFile) -> ast.expr | None:
    """The tensor that `.item()`, `float()` or `int()` reads; None when it reads none, or one on the CPU."""
    tensor = method_call(node, "item")
    if tensor is not None:
        if isinstance(node, ast.Call) and node.args:
            return None  # numpy's item(i)
        while (inner := method_call(tensor, "cpu", "detach")) is not None:
            tensor = inner  # `loss.detach().cpu().item()` reads the device tensor all the same
        value = file.values.of(tensor)
        return tensor if value.kind in ("tensor", "") and value.device != "cpu" else None
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int")
    ):
        return None
    if len(node.args) != 1 or node.keywords:
        return None
    value = file.values.of(node.args[0])
    return node.args[0] if value.kind == "tensor" and value.device != "cpu" else None


def tensor_of_copy(node: ast.AST, file: SourceFile) -> ast.expr | None:
    """The device tensor that a chain such as `x.detach().cpu().numpy()` copies, for its outermost call."""
    inner = method_call(node, *TO_HOST)
    if inner is None or (isinstance(node, ast.Call) and node.args):
        return None
    parent = file.index.parent(node)
    grand = file.index.parent(parent) if parent is not None else None
    if isinstance(parent, ast.Attribute) and method_call(grand or parent, *TO_HOST) is node:
        return None  # the outer call of the chain speaks
    while (deeper := method_call(inner, *TO_HOST)) is not None:
        inner = deeper
    value = file.values.of(inner)
    return inner if value.kind == "tensor" and value.device != "cpu" else None
