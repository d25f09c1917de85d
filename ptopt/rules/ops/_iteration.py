"""What a name or a subscript takes its values from, one element per iteration."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.code import is_call_of
from ptopt.source.file import remembered
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, Loop, own_nodes

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True)
class Elements:
    """A loop or a comprehension, and the expression that it takes apart."""

    place: Loop | Comprehension
    source: ast.expr
    plain: bool  # iterated as it is, without `zip`, `enumerate` or an index

    @property
    def is_loop(self) -> bool:
        return isinstance(self.place, (ast.For, ast.AsyncFor))


def elements_of(element: ast.expr, file: SourceFile) -> Elements | None:
    """What `element` is one of: `t` in a loop over `v`, or `v[i]` in a loop over a range. Else None."""
    for ancestor, child in file.index.ancestors(element):
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            return None
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(ancestor, COMPREHENSIONS):
            pairs = [(g.target, g.iter) for g in reversed(ancestor.generators)]
        elif isinstance(ancestor, (ast.For, ast.AsyncFor)) and in_body(child, ancestor):
            pairs = [(ancestor.target, ancestor.iter)]
        for target, iterable in pairs:
            source = _source(element, target, iterable)
            if source is not None and isinstance(ancestor, (ast.For, ast.AsyncFor, *COMPREHENSIONS)):
                if _changes(element, source, ancestor):
                    return None
                return Elements(ancestor, source, iterable is source)
    return None


def in_body(child: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
    """Is a child of the loop in its body? Not searched in the body itself, which may be long."""
    return child is not loop.iter and child is not loop.target and child not in loop.orelse


def _source(element: ast.expr, target: ast.expr, iterable: ast.expr) -> ast.expr | None:
    if isinstance(element, ast.Name):
        return _paired(target, iterable, element.id)
    if not isinstance(element, ast.Subscript) or not isinstance(element.slice, ast.Name):
        return None
    ranged = is_call_of(iterable, "range")
    if not ranged or not isinstance(target, ast.Name) or target.id != element.slice.id:
        return None
    literal = isinstance(iterable, ast.Call) and all(isinstance(a, ast.Constant) for a in iterable.args)
    return None if literal else element.value


def _paired(target: ast.expr, iterable: ast.expr, name: str) -> ast.expr | None:
    """The expression whose elements `name` takes, through `enumerate` and `zip`."""
    function = (
        iterable.func.id if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) else ""
    )
    if isinstance(target, ast.Name):
        return iterable if target.id == name and not function else None
    if not isinstance(target, ast.Tuple) or not isinstance(iterable, ast.Call):
        return None
    for position, part in enumerate(target.elts):
        found = None
        if function == "enumerate" and position == 1 and iterable.args:
            found = _paired(part, iterable.args[0], name)
        elif function == "zip" and position < len(iterable.args):
            found = _paired(part, iterable.args[position], name)
        if found is not None:
            return found
    return None


def _changes(element: ast.expr, source: ast.expr, place: ast.AST) -> bool:
    """Does the loop bind the element or its source anew, or write into the source?"""
    if not isinstance(place, (ast.For, ast.AsyncFor)):
        return False
    names = {n.id for n in (element, source) if isinstance(n, ast.Name)}
    stored, written_into = _stores_of(place)
    return bool(names & stored) or ast.dump(source) in written_into


@remembered
def _stores_of(loop: ast.For | ast.AsyncFor) -> tuple[frozenset[str], frozenset[str]]:
    """Names that the loop binds, and the code of what it writes into by an index."""
    nodes = [n for stmt in loop.body for n in [stmt, *own_nodes(stmt)]]
    names = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    items = (n.value for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return frozenset(names), frozenset(map(ast.dump, items))
