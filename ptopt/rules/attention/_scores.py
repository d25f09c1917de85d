"""Reads off a function how the argument of a softmax came from queries and keys."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from dataclasses import dataclass, field

from ptopt.rules.base import SourceFile
from ptopt.rules.code import keyword_of
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

_LAST_TWO = ({-2, -1}, {2, 3}, {1, 2}, {-1, 2}, {-1, 3}, {-2, 3})
KEEPS = frozenset("float to type_as half type contiguous double bfloat16 clone".split())
RESHAPES = frozenset("view reshape flatten unflatten squeeze unsqueeze".split())
_ARITHMETIC = frozenset({"masked_fill", "mul", "div", "add", "sub"})
_MASKS = re.compile(r"mask|valid", re.I)
_KEY_NAME = re.compile(r"(^|_)(k|key|keys|xk|kt|ks)(_|\d|$)", re.I)


@dataclass(slots=True)
class Scores:
    """What stands between the product of queries and keys and the softmax."""

    product: ast.expr
    query: ast.expr
    key: ast.expr
    scales: list[tuple[ast.expr, bool]] = field(default_factory=list)  # the factor, and whether it divides
    masks: list[tuple[str, ast.expr]] = field(default_factory=list)  # "drop" | "keep" | "add" | "subtract"
    reshaped: bool = False
    einsum: bool = False
    transposed: bool = False  # `key` already stands as the product needs it, heads by length last


def called_softmaxes(call: ast.Call, file: SourceFile) -> list[ast.Call]:
    """The call itself; for `self.attend = nn.Softmax(-1)`, the calls of `self.attend`."""
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "softmax"
        or not isinstance(file.index.parent(call), ast.Assign)
    ):
        return [call]
    assign = file.index.parent(call)
    names = {t.attr for t in getattr(assign, "targets", ()) if isinstance(t, ast.Attribute) and _is_self(t)}
    own = file.once(_calls_by_class)
    cls = file.index.class_of(call)
    return [found for name in sorted(names - {"softmax"}) for found in own.get((cls, name), ())] or [call]


def _calls_by_class(file: SourceFile) -> dict[tuple[ast.ClassDef | None, str], list[ast.Call]]:
    """(class, name) -> calls of `something.name` in the class."""
    table: dict[tuple[ast.ClassDef | None, str], list[ast.Call]] = {}
    for call in file.index.of_type(ast.Call):
        if isinstance(call.func, ast.Attribute):
            table.setdefault((file.index.class_of(call), call.func.attr), []).append(call)
    return table


def softmax_argument(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """The scores of a softmax over the last dimension: `F.softmax(s, -1)`, `s.softmax(dim=-1)`, `self.softmax(s)`."""
    func = call.func
    name = last_name(func)
    if name == "softmax":
        qualified = file.imports.qualified(func)
        if qualified.startswith("torch.") or isinstance(func, ast.Name) and qualified:
            return call.args[0] if call.args and _is_last(keyword_of(call, "dim"), call.args[1:]) else None
        if isinstance(func, ast.Attribute) and not _is_self(func):
            return func.value if _is_last(keyword_of(call, "dim"), call.args) else None
    if isinstance(func, ast.Attribute) and _is_self(func) and len(call.args) == 1:
        cls = file.index.class_of(call)
        made = file.bindings.attribute(cls, func.attr) if cls is not None else None
        if isinstance(made, ast.Call) and file.imports.qualified(made.func) == "torch.nn.Softmax":
            return call.args[0] if _is_last(keyword_of(made, "dim"), made.args) else None
    return None


def _is_last(dim: ast.expr | None, positional: list[ast.expr]) -> bool:
    given = dim if dim is not None else positional[0] if positional else None
    return _number(given) in (-1, 3, 2)


def _number(node: ast.expr | None) -> int | None:
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


# -- products ----------------------------------------------------------------------------------------------


def operands(expr: ast.expr, file: SourceFile) -> tuple[ast.expr, ast.expr, str] | None:
    """Left, right and einsum equation of a matrix product, or None."""
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.MatMult):
        return expr.left, expr.right, ""
    if not isinstance(expr, ast.Call):
        return None
    func, args = expr.func, expr.args
    name = last_name(func)
    if name in ("matmul", "bmm"):
        if file.imports.qualified(func).startswith("torch.") and len(args) == 2:
            return args[0], args[1], ""
        if isinstance(func, ast.Attribute) and len(args) == 1:
            return func.value, args[0], ""
    if (
        name == "einsum"
        and len(args) == 3
        and isinstance(args[0], ast.Constant)
        and isinstance(args[0].value, str)
    ):
        return args[1], args[2], args[0].value
    return None


def _indices(equation: str) -> tuple[list[str], list[str], list[str]] | None:
    """Index names of both operands and the result, of "bhid,bhjd->bhij" or "b h i d, b h j d -> b h i j"."""
    match = re.fullmatch(r"([^,>]+),([^,>]+)->(.+)", equation)
    if match is None:
        return None
    spaced = any(" " in part.strip() for part in match.groups())
    left, right, out = (
        part.replace("...", " … ").split() if spaced else list(part.strip().replace("...", "…"))
        for part in match.groups()
    )
    return left, right, out


def _is_scores_equation(equation: str) -> bool:
    parts = _indices(equation)
    if parts is None or min(map(len, parts)) < 2:
        return False
    left, right, out = parts
    batch = left[:-2]
    return left[-1] == right[-1] not in out and right[:-2] == batch and out == [*batch, left[-2], right[-2]]


def keys_differ_by_query(equation: str) -> bool:
    """Has each query keys of its own, a neighbourhood: "b i d, b i j d -> b i j"? No fused call computes that."""
    parts = _indices(equation)
    return parts is not None and set(parts[0]) <= set(parts[1])


def is_output_equation(equation: str) -> bool:
    parts = _indices(equation)
    if parts is None or min(map(len, parts)) < 2:
        return False
    left, right, out = parts
    return left[-1] == right[-2] not in out and out == [*left[:-1], right[-1]]


def untransposed(key: ast.expr) -> ast.expr | None:
    """`k` of `k.transpose(-2, -1)` and `k.mT`, or None."""
    if isinstance(key, ast.Attribute) and key.attr in ("mT", "T"):
        return key.value
    if isinstance(key, ast.Call) and isinstance(key.func, ast.Attribute):
        if key.func.attr in ("transpose", "swapaxes", "swapdims", "transpose_") and len(key.args) == 2:
            return key.func.value if {_number(a) for a in key.args} in _LAST_TWO else None
        if key.func.attr == "contiguous":
            return untransposed(key.func.value)
    return None


# -- from the softmax back to the scores -------------------------------------------------------------------


def trace(expr: ast.expr, file: SourceFile, depth: int = 0) -> Scores | None:
    """How the scores came about, or None when it is anything else than a scaled, masked product."""
    if depth > 12:
        return None
    found = operands(expr, file)
    if found is not None:
        return _scores(expr, *found, file)
    if isinstance(expr, ast.Name):
        return _trace_name(expr, file, depth)
    if isinstance(expr, ast.BinOp):
        return _trace_operator(expr, file, depth)
    if isinstance(expr, ast.Call):
        return _trace_call(expr, file, depth)
    return None


def _scores(
    expr: ast.expr, left: ast.expr, right: ast.expr, equation: str, file: SourceFile
) -> Scores | None:
    if equation:
        return Scores(expr, left, right, einsum=True) if _is_scores_equation(equation) else None
    if untransposed(left) is not None:
        return None
    query = left
    scales: list[tuple[ast.expr, bool]] = []
    if (
        isinstance(left, ast.BinOp)
        and isinstance(left.op, (ast.Mult, ast.Div))
        and isinstance(left.left, (ast.Name, ast.Attribute))
    ):
        query, scales = left.left, [(left.right, isinstance(left.op, ast.Div))]
    plain = untransposed(right)
    if plain is not None:
        return Scores(expr, query, plain, scales)
    if isinstance(right, ast.Name) and _KEY_NAME.search(right.id):
        binding = file.bindings.last_before(right)
        text = file.source(binding.value) if binding is not None and binding.value is not None else ""
        if re.search(
            r"permute\(0, ?2, ?3, ?1\)|transpose\(-|transpose\(-2|permute\(0, ?2, ?1\)|-> ?b h d n|\.mT", text
        ):
            return Scores(expr, query, right, scales, transposed=True)
    return None


def _trace_name(name: ast.Name, file: SourceFile, depth: int) -> Scores | None:
    binding = file.bindings.last_before(name)
    function = file.index.function_of(name)
    if (
        binding is None
        or binding.value is None
        or (binding.line, binding.column) >= (name.lineno, name.col_offset)
    ):
        return None
    scores: Scores | None = None
    if binding.kind == "assign":
        scores = trace(binding.value, file, depth + 1)
    elif binding.kind == "augment" and isinstance(binding.node, ast.AugAssign):
        every = file.bindings.of(function, name.id)
        before = every[: bisect_left(every, binding.line, key=lambda b: b.line)]
        earlier = next((b for b in reversed(before) if b.value is not None), None)
        if earlier is not None and earlier.kind == "assign":
            scores = trace(earlier.value, file, depth + 1)  # type: ignore[arg-type]
            if scores is not None and not _apply(scores, binding.node.op, binding.value):
                return None
    if scores is None:
        return None
    changes = _changes_in_place(function, name.id, file)
    for at in range(bisect_left(changes, binding.line, key=lambda c: c[0].lineno), len(changes)):
        call, method = changes[at]
        if call.lineno >= name.lineno:
            break
        _method(scores, method, call.args)
    return scores


@remembered
def _changes_in_place(
    function: FunctionNode | None, name: str, file: SourceFile
) -> list[tuple[ast.Call, str]]:
    """`scores.masked_fill_(mask, -inf)` as a statement: such calls, and their methods, in source order."""
    return [
        (call, call.func.attr)
        for call in file.calls.calls_in(function)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name
        and call.func.attr in ("masked_fill_", "add_", "mul_", "div_")
        and isinstance(file.index.parent(call), ast.Expr)
        and call.args
    ]


def _apply(scores: Scores, op: ast.operator, other: ast.expr) -> bool:
    if isinstance(op, (ast.Mult, ast.Div)):
        if _MASKS.search(ast.unparse(other)):
            return False  # a mask of zeros and ones is no number to scale by
        scores.scales.append((other, isinstance(op, ast.Div)))
    elif isinstance(op, (ast.Add, ast.Sub)):
        scores.masks.append(("add" if isinstance(op, ast.Add) else "subtract", other))
    else:
        return False
    return True


def _trace_operator(expr: ast.BinOp, file: SourceFile, depth: int) -> Scores | None:
    for inner, other in ((expr.left, expr.right), (expr.right, expr.left)):
        if inner is expr.right and not isinstance(expr.op, (ast.Mult, ast.Add)):
            continue
        scores = trace(inner, file, depth + 1)
        if scores is not None:
            if isinstance(expr.op, ast.Sub) and "max(" in file.source(other):
                return scores  # for stability: softmax is the same without it
            return scores if _apply(scores, expr.op, other) else None
    return None


def _method(scores: Scores, name: str, args: list[ast.expr]) -> bool:
    base = name.rstrip("_")
    if base == "masked_fill":
        if len(args) > 1 and isinstance(args[1], ast.Constant) and isinstance(args[1].value, (int, float)):
            return False  # no mask: masks are filled with large negative numbers
        scores.masks.append(("drop", args[0]))
    elif base in ("mul", "div", "add", "sub"):
        ops: dict[str, ast.operator] = {
            "mul": ast.Mult(),
            "div": ast.Div(),
            "add": ast.Add(),
            "sub": ast.Sub(),
        }
        return _apply(scores, ops[base], args[0])
    elif name in RESHAPES:
        scores.reshaped = True
    else:
        return name in KEEPS
    return True


def _trace_call(call: ast.Call, file: SourceFile, depth: int) -> Scores | None:
    func = call.func
    qualified = file.imports.qualified(func)
    if qualified == "torch.where" and len(call.args) == 3:
        for inner, kind in ((call.args[1], "keep"), (call.args[2], "drop")):
            scores = trace(inner, file, depth + 1)
            if scores is not None:
                scores.masks.append((kind, call.args[0]))
                return scores
        return None
    if qualified in ("torch.mul", "torch.div", "torch.add", "torch.masked_fill") and len(call.args) >= 2:
        scores = trace(call.args[0], file, depth + 1)
        return scores if scores is not None and _method(scores, qualified[6:], call.args[1:]) else None
    if not isinstance(func, ast.Attribute) or qualified or _is_self(func):
        return None
    if func.attr not in KEEPS | RESHAPES and func.attr.rstrip("_") not in _ARITHMETIC:
        return None
    scores = trace(func.value, file, depth + 1)
    return scores if scores is not None and _method(scores, func.attr, call.args) else None
