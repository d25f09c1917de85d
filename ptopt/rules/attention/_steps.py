"""Finds attention that is spread over any number of assignments of one function."""

from __future__ import annotations

import ast
import re

from ptopt.rules.attention._scores import operands
from ptopt.rules.base import SourceFile
from ptopt.source.bindings import is_self
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
        if _passes_on(value, weights) or any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and _holds(n.left, softmax, weights)
            for n in walk(value)
        ):
            return None  # something else is made of the weights than a fused call can
        if not any(operands(n, file) for n in walk(value) if isinstance(n, ast.expr)):
            weights.add(name)
    function = file.index.function_of(softmax)
    for node in own_nodes(function) if function is not None else ():
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            returned = any(isinstance(e, ast.Name) and e.id in weights for e in node.value.elts)
            if returned and not any(isinstance(a, ast.If) for a, _ in file.index.ancestors(node)):
                return None
    for node in own_nodes(function) if function is not None else ():
        found = operands(node, file) if isinstance(node, ast.expr) and node.lineno >= softmax.lineno else None
        if found is None:
            continue
        for one, other in (found[:2], found[1::-1]):
            if _holds(one, softmax, weights) and _VALUE.search(_leaf(other)):
                return node if isinstance(node, ast.expr) else None
    return None


def _holds(expr: ast.expr, softmax: ast.Call, names: set[str]) -> bool:
    return any(n is softmax or isinstance(n, ast.Name) and n.id in names for n in walk(expr))


def _passes_on(expr: ast.expr, names: set[str]) -> bool:
    """Does a layer or a function of the project, other than dropout and softmax, take one of the names?"""
    for call in walk(expr):
        if not isinstance(call, ast.Call) or not names:
            continue
        func = call.func
        own = isinstance(func, ast.Name) or is_self(func)
        taken = any(isinstance(n, ast.Name) and n.id in names for a in call.args for n in walk(a))
        if own and taken and not _HARMLESS.search(ast.unparse(func)):
            return True
    return False


def _is_scores(expr: ast.expr, file: SourceFile) -> bool:
    found = operands(expr, file)
    return found is not None and bool(_QUERY.search(_leaf(found[0])) and _KEY.search(_leaf(found[1])))


def _product_in(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    return next((n for n in walk(expr) if isinstance(n, ast.expr) and _is_scores(n, file)), None)


def _first(expr: ast.expr, origin: dict[str, ast.expr]) -> ast.expr | None:
    return next((origin[n.id] for n in walk(expr) if isinstance(n, ast.Name) and n.id in origin), None)


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
