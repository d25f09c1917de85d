"""How many dimensions the queries of spelled-out attention have: the fused kernels take four, and only four."""

from __future__ import annotations

import ast

from ptopt.rules.attention._scores import Scores
from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name

_KEEPS_RANK = frozenset(
    "transpose swapaxes contiguous float half to type type_as clone mul div chunk split tensor_split".split()
)
_VIEWS = frozenset({"view", "reshape", "permute"})


def rank_of(scores: Scores, file: SourceFile) -> int | None:
    """Number of dimensions of the product of queries and keys, or None when the code does not tell."""
    product = scores.product
    if scores.einsum:
        equation = product.args[0].value if isinstance(product, ast.Call) else ""  # type: ignore[attr-defined]
        left = equation.partition(",")[0].strip()
        return None if "." in left else len(left.split()) if " " in left else len(left)
    func = product.func if isinstance(product, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr == "bmm":
        return 3
    axes = _positive_axes(product)
    if axes:
        return max(axes) + 1
    return next((n for part in (scores.query, scores.key) if (n := _rank(part, file)) is not None), None)


def _positive_axes(product: ast.expr) -> set[int]:
    """Axes counted from the front in `k.transpose(2, 3)`: they are the last two."""
    right = (
        product.right
        if isinstance(product, ast.BinOp)
        else product.args[-1]
        if isinstance(product, ast.Call) and product.args
        else None
    )
    if not (isinstance(right, ast.Call) and isinstance(right.func, ast.Attribute)):
        return set()
    axes = {a.value for a in right.args if isinstance(a, ast.Constant) and isinstance(a.value, int)}
    return axes if right.func.attr == "transpose" and len(axes) == 2 else set()


def _rank(expr: ast.expr, file: SourceFile) -> int | None:
    """Dimensions of a name that is bound to a view of known shape."""
    binding = file.bindings.last_before(expr) if isinstance(expr, ast.Name) else None
    if binding is None or binding.value is None:
        return None
    value = binding.value
    if binding.kind == "unpack":  # `q, k, v = (t.view(b, n, h, d) for t in qkv)`, or with `map`
        if isinstance(value, (ast.GeneratorExp, ast.ListComp)):
            return _viewed(value.elt, file)
        if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Lambda):
            return _viewed(value.args[0].body, file)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            whole = _viewed(value, file)
            sections = value.func.attr in ("chunk", "split", "tensor_split")
            return whole if whole is None or sections else whole - 1  # unpacked along the first dimension
        return None
    return _viewed(value, file) if binding.kind == "assign" else None


def _viewed(expr: ast.expr, file: SourceFile) -> int | None:
    """Dimensions that the last view of a chain of method calls gives: `x.view(b, n, h, d).transpose(1, 2)`.

    What a linear layer gives has three when no view splits it into heads.
    """
    while isinstance(expr, ast.Call):
        func, args = expr.func, expr.args
        name = last_name(func)
        if name == "rearrange" and len(args) == 2 and isinstance(args[1], ast.Constant):
            return _pattern_rank(str(args[1].value))
        if not isinstance(func, ast.Attribute):
            return None
        if name in _VIEWS:
            if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
                args = args[0].elts
            unclear = len(args) < 2 or any(isinstance(a, ast.Starred) for a in args)
            return None if unclear else len(args)
        if name not in _KEEPS_RANK:
            return 3 if _is_linear(func, file) else None
        expr = func.value
    return None


def _is_linear(func: ast.Attribute, file: SourceFile) -> bool:
    cls = file.index.class_of(func)
    made = (
        file.bindings.attribute(cls, func.attr)
        if cls is not None and isinstance(func.value, ast.Name)
        else None
    )
    return isinstance(made, ast.Call) and file.imports.qualified(made.func) == "torch.nn.Linear"


def _pattern_rank(pattern: str) -> int | None:
    """Dimensions on the right of an einops pattern such as "b n (h d) -> b h n d"."""
    right = pattern.partition("->")[2]
    if not right or "..." in right:
        return None
    rank, depth = 0, 0
    for word in right.replace("(", " ( ").replace(")", " ) ").split():
        rank += depth == 0 and word != ")"
        depth += (word == "(") - (word == ")")
    return rank
