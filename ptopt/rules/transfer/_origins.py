"""Where a tensor on the host comes from: factories, Python data, or a copy from the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.source.file import SourceFile
from ptopt.source.index import walk
from ptopt.source.torch_names import TENSOR_FACTORIES

_DATA = frozenset({"tensor", "as_tensor", "from_numpy", "Tensor"})
FILLED = TENSOR_FACTORIES - _DATA
_DEEPEST = 4  # names that are followed


def built_from_factories(expr: ast.expr, file: SourceFile) -> list[ast.Call] | None:
    """The factory calls that a host tensor is computed from, and nothing else but numbers; None when there is more."""
    found: list[ast.Call] = []
    return found if _built(expr, file, found, _DEEPEST) and found else None


def _built(expr: ast.expr, file: SourceFile, found: list[ast.Call], names: int) -> bool:
    value = file.values.of(expr)
    if isinstance(expr, ast.Call):
        qualified = file.imports.qualified(expr.func)
        leaf = qualified.rpartition(".")[2]
        if qualified == f"torch.{leaf}" and leaf in FILLED:
            if value.device != "cpu" or leaf.endswith("_like"):
                return False
            found.append(expr)
            return True
        if value.kind not in ("tensor", "tensors") or value.device != "cpu":
            return False
        parts = (
            list(expr.args)
            if qualified
            else [expr.func.value]
            if isinstance(expr.func, ast.Attribute)
            else []
        )
        parts += [] if qualified else list(expr.args)
        return bool(parts) and all(_is_number(p, file) or _built(p, file, found, names) for p in parts)
    if isinstance(expr, (ast.BinOp, ast.Compare)):
        sides = [expr.left, expr.right] if isinstance(expr, ast.BinOp) else [expr.left, *expr.comparators]
        return all(_is_number(side, file) or _built(side, file, found, names) for side in sides)
    if isinstance(expr, ast.UnaryOp):
        return _built(expr.operand, file, found, names)
    if isinstance(expr, ast.Subscript):
        return _built(expr.value, file, found, names)
    if isinstance(expr, (ast.List, ast.Tuple)):
        return bool(expr.elts) and all(_built(e, file, found, names) for e in expr.elts)
    if isinstance(expr, ast.Name) and names:
        function = file.index.function_of(expr)
        bindings = file.bindings.of(function, expr.id)
        before = [b for b in bindings if b.line < expr.lineno]
        return bool(before) and all(
            b.kind == "assign" and b.value is not None and _built(b.value, file, found, names - 1)
            for b in before
        )
    return False


def _is_number(expr: ast.expr, file: SourceFile) -> bool:
    """No tensor: a number, a size, a text, or a plain name of which nothing says that it is one."""
    value = file.values.of(expr)
    if value.kind in ("scalar", "text"):
        return True
    if isinstance(expr, ast.UnaryOp):
        return _is_number(expr.operand, file)
    if isinstance(expr, ast.BinOp):
        return _is_number(expr.left, file) and _is_number(expr.right, file)
    if isinstance(expr, (ast.Tuple, ast.List)):
        return all(_is_number(e, file) for e in expr.elts)
    return not value.kind and isinstance(expr, (ast.Name, ast.Attribute))


def sources(expr: ast.expr, file: SourceFile, names: int = _DEEPEST) -> Iterator[ast.AST]:
    """Every node that the value of `expr` is computed from in its function, through names bound before it."""
    for node in walk(expr):
        yield node
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and names:
            binding = file.bindings.last_before(node)
            if (
                binding is not None
                and binding.kind in ("assign", "unpack")
                and binding.value is not None
                and file.index.function_of(binding.node) is file.index.function_of(node)
            ):
                yield from sources(binding.value, file, names - 1)
