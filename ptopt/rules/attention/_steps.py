"""Finds attention that is spread over any number of assignments of one function."""

from __future__ import annotations

import ast
import re

from ptopt.rules.attention._scores import keys_differ_by_query, operands
from ptopt.rules.base import SourceFile
from ptopt.source.bindings import is_self
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes, walk

_QUERY = re.compile(r"(^|_)(q|query|queries|xq|qs)(_|\d|$)|quer", re.I)
_KEY = re.compile(r"(^|_)(k|key|keys|xk|kt|ks)(_|\d|$)|(^|_)keys?", re.I)
_VALUE = re.compile(r"(^|_)(v|value|values|xv|vs)(_|\d|$)|value", re.I)
_HARMLESS = re.compile(r"drop|softmax|rearrange|einsum|bmm|matmul|max", re.I)


def assignments(file: SourceFile) -> dict[FunctionNode, list[tuple[ast.expr, str]]]:
    """Function -> (value, name it is given to) of its assignments, in source order."""
    table: dict[FunctionNode, list[tuple[ast.expr, str]]] = {}
    for statement in sorted(file.index.of_type(ast.Assign, ast.AugAssign), key=lambda s: s.lineno):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        function = file.index.function_of(statement)
        if isinstance(target, ast.Name) and function is not None:
            table.setdefault(function, []).append((statement.value, target.id))
    return table


def scores_of(
    argument: ast.expr, softmax: ast.Call, steps: list[tuple[ast.expr, str]], file: SourceFile
) -> ast.expr | None:
    """The product of queries and keys that the softmax is taken of, through any number of assignments."""
    direct = _product_in(argument, file)
    if direct is not None:
        return direct
    origin: dict[str, ast.expr] = {}
    for value, name in steps:
        if value.lineno > softmax.lineno:
            break
        made = _product_in(value, file) or _first(value, origin)
        if made is not None:
            if _passes_on(value, set(origin)):
                return None  # a layer mixes the scores of the heads
            origin[name] = made
    return _first(argument, origin)


def mixed_by(softmax: ast.Call, steps: list[tuple[ast.expr, str]], file: SourceFile) -> ast.expr | None:
    """The product of the weights and the values."""
    weights: set[str] = set()
    for value, name in steps:
        if value.lineno < softmax.lineno or not _holds(value, softmax, weights):
            continue
        if _passes_on(value, weights) or any(_holds(part, softmax, weights) for part in _divided(value)):
            return None  # something else is made of the weights than a fused call can
        if not _multiplies(value, file):
            weights.add(name)
    function = file.index.function_of(softmax)
    if function is None or not weights.isdisjoint(_returned(function, file)):
        return None
    for node, left, right in _products_of(function, file):
        if node.lineno < softmax.lineno:
            continue
        for one, other in ((left, right), (right, left)):
            if _holds(one, softmax, weights) and _VALUE.search(_leaf(other)):
                return node
    return None


def _holds(expr: ast.expr, softmax: ast.Call, names: set[str]) -> bool:
    if not names.isdisjoint(_names_in(expr)):
        return True
    near = expr.lineno <= softmax.lineno <= (expr.end_lineno or 0)
    return near and any(n is softmax for n in walk(expr))


# -- what is found once in each expression or function: a softmax asks it of all steps around it ---------------


@remembered
def _names_in(expr: ast.expr) -> tuple[str, ...]:
    return tuple(n.id for n in walk(expr) if isinstance(n, ast.Name))


@remembered
def _divided(expr: ast.expr) -> list[ast.expr]:
    return [n.left for n in walk(expr) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]


@remembered
def _multiplies(expr: ast.expr, file: SourceFile) -> bool:
    return any(operands(n, file) for n in walk(expr) if isinstance(n, ast.expr))


@remembered
def _returned(function: FunctionNode, file: SourceFile) -> frozenset[str]:
    """Names that the function returns in a tuple: whatever the case, or where an option says so that somebody switches on."""
    returns = (n for n in own_nodes(function) if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple))
    return frozenset(
        e.id
        for n in returns
        if all(_is_switched_on(a.test, file) for a, _ in file.index.ancestors(n) if isinstance(a, ast.If))
        for e in n.value.elts  # type: ignore[union-attr]
        if isinstance(e, ast.Name)
    )


def _is_switched_on(test: ast.expr, file: SourceFile) -> bool:
    """`self.output_attention`, where this file or one around it says `output_attention=True`."""
    if not isinstance(test, ast.Attribute):
        return False
    on = rf"\b{test.attr}\s*(?::\s*bool\s*)?=\s*True\b"
    return file.search(re.compile(on)) or file.repository.matches(re.compile(on.encode()))


@remembered
def _products_of(function: FunctionNode, file: SourceFile) -> list[tuple[ast.expr, ast.expr, ast.expr]]:
    """Each product of the function, with its operands."""
    nodes = (n for n in own_nodes(function) if isinstance(n, ast.expr))
    return [(n, found[0], found[1]) for n in nodes if (found := operands(n, file)) is not None]


@remembered
def _handed(expr: ast.expr) -> frozenset[str]:
    """Names that a layer or a function of the project takes, other than dropout and softmax."""
    calls = [n for n in walk(expr) if isinstance(n, ast.Call)]
    return frozenset(
        name
        for call in calls
        if (isinstance(call.func, ast.Name) or is_self(call.func))
        and not _HARMLESS.search(ast.unparse(call.func))
        for arg in call.args
        for name in _names_in(arg)
    )


def _passes_on(expr: ast.expr, names: set[str]) -> bool:
    """Does a layer or a function of the project, other than dropout and softmax, take one of the names?"""
    return bool(names) and not names.isdisjoint(_handed(expr))


def _is_scores(expr: ast.expr, file: SourceFile) -> bool:
    found = operands(expr, file)
    if found is None or (found[2] and keys_differ_by_query(found[2])):
        return False
    return bool(_QUERY.search(_leaf(found[0])) and _KEY.search(_leaf(found[1])))


@remembered
def _product_in(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    return next((n for n in walk(expr) if isinstance(n, ast.expr) and _is_scores(n, file)), None)


def _first(expr: ast.expr, origin: dict[str, ast.expr]) -> ast.expr | None:
    return next((origin[name] for name in _names_in(expr) if name in origin), None)


def _leaf(expr: ast.expr) -> str:
    """The name that an operand starts from: `k` of `k.transpose(-2, -1)`, `key_layer` of `key_layer * scale`."""
    while not isinstance(expr, ast.Name):
        if isinstance(expr, ast.Call):
            plain = isinstance(expr.func, ast.Attribute)
            expr = expr.func.value if isinstance(expr.func, ast.Attribute) else expr.func
            if not plain:
                return ""
        elif isinstance(expr, (ast.Attribute, ast.Subscript)):
            if (
                isinstance(expr, ast.Attribute)
                and isinstance(expr.value, ast.Name)
                and expr.value.id == "self"
            ):
                return expr.attr
            expr = expr.value
        elif isinstance(expr, ast.BinOp):
            expr = expr.left
        else:
            return ""
    return expr.id
