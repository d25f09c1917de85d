"""What repeats a node, and whether an expression stays the same from one iteration to the next."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._pure import changes, reads, steady
from ptopt.source.index import COMPREHENSIONS, LOOPS, Loop

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Repeat = Loop | Comprehension


def repeat_of(node: ast.AST, file: SourceFile) -> Repeat | None:
    """The innermost loop or comprehension that runs the node once an iteration."""
    first: ast.AST | None = (
        None  # the part of a comprehension that is evaluated once, where the node stands in one
    )
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.comprehension) and child is ancestor.iter:
            first = ancestor
        if isinstance(ancestor, COMPREHENSIONS):
            if ancestor.generators[0] is not first:
                return ancestor
            first = None
            continue  # a comprehension in a comprehension
        if isinstance(ancestor, ast.Lambda):
            return None
        if isinstance(ancestor, ast.While) and child is ancestor.test:
            return ancestor
        if isinstance(ancestor, ast.stmt):
            break
    return next(file.index.loops_of(node), None)


def stays_same(expr: ast.expr, place: Repeat, file: SourceFile) -> bool:
    """Does the loop leave alone all names that the expression reads? It must read one."""
    keys = reads(expr, file)
    if not keys or "self" in keys:
        return False
    if isinstance(place, LOOPS) and not steady(keys, expr, file):
        return False
    return not changes(file.index.function_of(place), file).in_node(keys, place)


def words_for(place: Repeat) -> str:
    """ "loop" or "comprehension", for a message."""
    return "comprehension" if isinstance(place, COMPREHENSIONS) else "loop"
