"""Ways to read a tensor back to Python."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile, method_call
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

TO_HOST = ("cpu", "numpy", "tolist")
_REPORTING = re.compile(
    r"^(append|extend|update|add|print|info|debug|record\w*|log\w*|add_scalars?|set_postfix|set_description|write|meter|put)$"
)
_METRIC = re.compile(
    r"loss|acc|metric|correct|score|reward|grad_?norm|perplexity|ppl|error|iou|psnr|avg|mean|total|running|stat|log",
    re.I,
)


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


def is_reported(node: ast.AST, file: SourceFile, depth: int = 2) -> bool:
    """Does the value only go where numbers are kept or shown: a sum, a list, a dictionary, a log, a return?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(
            ancestor, (ast.Compare, ast.Subscript, ast.Slice, ast.BoolOp, ast.If, ast.While, ast.Assert)
        ):
            return isinstance(ancestor, ast.Subscript) and child is ancestor.value
        if isinstance(ancestor, ast.AugAssign):
            return isinstance(ancestor.target, (ast.Name, ast.Attribute, ast.Subscript))
        if isinstance(ancestor, (ast.Return, ast.Dict, ast.JoinedStr, ast.DictComp)):
            return True
        if isinstance(ancestor, ast.Call):
            func = ancestor.func
            name = (
                func.attr
                if isinstance(func, ast.Attribute)
                else func.id
                if isinstance(func, ast.Name)
                else ""
            )
            if child in ancestor.args or isinstance(child, ast.keyword):
                return bool(_REPORTING.search(name)) or (
                    name in ("round", "float", "int", "abs") and is_reported(ancestor, file, depth)
                )
            return False
        if isinstance(ancestor, ast.Assign):
            target = ancestor.targets[0]
            if isinstance(target, ast.Name):
                return bool(_METRIC.search(target.id)) or (
                    depth > 0 and _all_reported(target, file, depth - 1)
                )
            return isinstance(target, (ast.Subscript, ast.Attribute))
        if isinstance(ancestor, ast.stmt):
            return False
    return False


def _all_reported(target: ast.Name, file: SourceFile, depth: int) -> bool:
    """Do all uses of the name in its function only report it?"""
    return _reported_name(file.index.function_of(target), target.id, depth, file)


@remembered
def _reported_name(function: FunctionNode | None, name: str, depth: int, file: SourceFile) -> bool:
    uses = file.reads_of(function, name)
    return bool(uses) and all(is_reported(use, file, depth) for use in uses)
