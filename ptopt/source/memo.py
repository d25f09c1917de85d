"""Conditions that the guarded code itself makes false: what stands behind them runs for the first call alone.

`if self.table is None: self.table = ...`, `if key not in cache: cache[key] = ...`, `if not self.ready: ...; self.ready = True`,
and the early exit `if self.table is not None: return self.table`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ptopt.source.index import walk

_FRESH = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp)
_SETTERS = frozenset({"register_buffer", "setattr", "register_parameter"})


def fills(test: ast.expr, guarded: Sequence[ast.stmt], on_true: bool = True) -> bool:
    """Does the guarded code set what the test says is still missing? `on_true`: it runs where the test holds."""
    names = missing(test, on_true)
    return bool(names) and not names.isdisjoint(last_set(guarded))


def missing(test: ast.expr, truth: bool) -> frozenset[str]:
    """The attributes ("self.table") and tables that have no value yet, or no fitting one, where `test` is `truth`."""
    return frozenset(_missing(test, truth))


def missing_name(test: ast.expr) -> str:
    """`n` of `n is None`, and of `n is None or n.size(0) != size`: a local name that has no value, or no fitting one; else
    ""."""
    first = test.values[0] if isinstance(test, ast.BoolOp) else test
    if not (
        isinstance(first, ast.Compare)
        and isinstance(first.ops[0], ast.Is)
        and isinstance(first.left, ast.Name)
        and ast.unparse(first.comparators[0]) == "None"
    ):
        return ""
    name = first.left.id
    if isinstance(test, ast.BoolOp):
        sized = all(_asks_size(value, name) for value in test.values[1:])
        return name if isinstance(test.op, ast.Or) and sized else ""
    return name


def _asks_size(test: ast.expr, name: str) -> bool:
    """`n.size(0) != size`, `n.shape[1] < size`, `n.device != x.device`"""
    return isinstance(test, ast.Compare) and any(
        isinstance(node, ast.Attribute)
        and node.attr in ("size", "shape", "device", "dtype")
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        for node in walk(test)
    )


def _missing(test: ast.expr, truth: bool) -> Iterator[str]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _missing(test.operand, not truth)
    elif isinstance(test, ast.BoolOp):
        # A conjunction is true, and a disjunction false, only where each part is.
        if truth == isinstance(test.op, ast.And):
            for value in test.values:
                yield from _missing(value, truth)
        else:
            parts = [set(_missing(value, truth)) for value in test.values]
            yield from set.intersection(*parts)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield from _missing_by_comparison(test, truth)
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "hasattr":
        if not truth and len(test.args) == 2:
            yield _named(test.args[0], test.args[1])
    elif not truth and (name := _kept(test)):
        yield name


def _missing_by_comparison(test: ast.Compare, truth: bool) -> Iterator[str]:
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(operator, (ast.Is, ast.IsNot)):
        if isinstance(right, ast.Constant) and right.value is None and truth == isinstance(operator, ast.Is):
            name = _kept(left) or _of_getattr(left)
            if name:
                yield name
    elif isinstance(operator, (ast.In, ast.NotIn)):
        if truth == isinstance(operator, ast.NotIn):
            yield _kept(right) or ast.unparse(right)
            if isinstance(left, ast.Constant) and isinstance(left.value, str):
                yield f"{ast.unparse(right)}.{left.value}".replace(".__dict__.", ".")
    else:  # `len(state) == 0`, `self.length < n`, `self.table.device != x.device`
        for side in (left, right):
            for node in walk(side):
                name = _kept(node)
                if name:
                    yield name
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
                    yield ast.unparse(node.args[0]) if node.args else ""


def _kept(node: ast.AST) -> str:
    """An attribute, which outlives the call: "self.table"; "" of anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        return ast.unparse(node)
    return ""


def _of_getattr(node: ast.expr) -> str:
    """`getattr(self, "table", None)`: "self.table"."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"):
        return ""
    return _named(node.args[0], node.args[1]) if len(node.args) >= 2 else ""


def _named(holder: ast.expr, name: ast.expr) -> str:
    """ "self.table" of `self` and `"table"`; "" where the name is computed."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return f"{ast.unparse(holder)}.{name.value}"
    return ""


def last_set(block: Sequence[ast.stmt]) -> dict[str, int]:
    """Attributes that the statements bind, and tables that they write an item of, by their text, with the place of the
    last statement that does; tables that the block makes itself, and counters, are left out."""
    found: dict[str, int] = {}
    fresh: set[str] = set()
    counted: set[ast.AST] = set()  # `self.step += 1` makes no condition false for good
    for at, statement in enumerate(block):
        for node in walk(statement):
            if isinstance(node, ast.AugAssign):
                counted.add(node.target)
            elif node in counted:
                continue
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found[ast.unparse(node)] = at
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found[ast.unparse(node.value)] = at
            elif isinstance(node, ast.Assign) and isinstance(node.value, _FRESH):
                fresh.update(t.id for t in node.targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.Call):
                found |= dict.fromkeys(_set_by(node), at)
    return {name: at for name, at in found.items() if name and name not in fresh}


def _set_by(call: ast.Call) -> set[str]:
    """`self.register_buffer("table", ...)`, `setattr(self, "table", ...)`, `cache.setdefault(...)`"""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name in _SETTERS:
        holder = func.value if isinstance(func, ast.Attribute) else call.args[0] if call.args else None
        named = call.args[0 if isinstance(func, ast.Attribute) else 1 :][:1]
        if holder is not None and named:
            return {_named(holder, named[0])}
    elif name in ("setdefault", "update") and isinstance(func, ast.Attribute):
        return {ast.unparse(func.value)}
    return set()
