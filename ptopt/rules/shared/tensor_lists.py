"""Lists of Python whose elements are tensors of the device."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.flow import assigned
from ptopt.source.calls import called_name

_SIZES = re.compile(r"\.shape\b|\.size\(|\blen\(|\.item\(|\.tolist\(|\.numpy\(|\.cpu\(")
_LISTS = frozenset({"list", "tuple", "range", "len", "int", "float", "bool"})


def device_tensors_in(data: ast.expr, file: SourceFile) -> list[ast.expr]:
    """The elements of a list, a nested list or a comprehension that are tensors not known to live on the CPU."""
    return [e for e in _elements(data, file) if _is_device_tensor(e, file)]


def _is_device_tensor(element: ast.expr, file: SourceFile) -> bool:
    """Is it a tensor that is not known to live on the CPU, by what computes it rather than by a name that may hold a number?"""
    if not file.values.is_on_device(element):
        return False
    root: ast.AST = element
    while not isinstance(root, ast.Name):
        inner = _inside(root)
        if inner is None:
            return isinstance(root, ast.Call) and called_name(root) not in _LISTS
        root = inner
    function = file.index.function_of(element)
    bound = file.bindings.of(function, root.id)
    if any(b.kind == "parameter" for b in bound):
        notes = {a.arg: a.annotation for a in function.args.args} if function is not None else {}
        note = notes.get(root.id)
        return isinstance(element, ast.Call) or (
            note is not None and ast.unparse(note) in ("torch.Tensor", "Tensor")
        )
    return not any(
        b.value is not None
        and (
            _SIZES.search(ast.unparse(b.value))
            or (b.kind == "unpack" and isinstance(b.value, ast.Call) and b.path[1:])
        )
        for b in bound
    )


def _inside(node: ast.AST) -> ast.expr | None:
    """The receiver of a method or an index, or the first operand that is a name, a method or an index."""
    if isinstance(node, ast.Call):
        return node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return node.operand
    if isinstance(node, ast.BinOp):
        return node.right if isinstance(node.left, ast.Constant) else node.left
    return None


def _elements(data: ast.expr, file: SourceFile) -> list[ast.expr]:
    """The innermost elements of a list, a nested list or a comprehension; of a name, those of what it was given."""
    if isinstance(data, ast.Name):
        value = assigned(data, file)
        return _elements(value, file) if isinstance(value, (ast.List, ast.Tuple, ast.ListComp)) else []
    if isinstance(data, (ast.List, ast.Tuple)):
        return [e for each in data.elts for e in (_elements(each, file) or [each])]
    if isinstance(data, ast.ListComp):
        return _elements(data.elt, file) or [data.elt]
    return []
