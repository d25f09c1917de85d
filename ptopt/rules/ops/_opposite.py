"""A value that is computed under a condition, and read under the opposite one alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import SourceFile
from ptopt.source.index import FunctionNode
from ptopt.source.liveness import Assigned, assigned_names


def only_read_under_the_opposite(
    statement: Assigned, function: FunctionNode, file: SourceFile
) -> tuple[ast.Name, str] | None:
    """A read of the value, and the condition, where all reads stand under the opposite of a condition of the statement."""
    here = dict(_conditions(statement, function, file))
    names = assigned_names(statement) if here else ()
    if any(len(file.bindings.of(function, name)) != 1 for name in names):
        return None  # as most
    found: tuple[ast.Name, str] | None = None
    for name in names:
        read = False
        for load in file.uses.named_in(function, name):
            if not isinstance(load.ctx, ast.Load):
                continue
            read = True
            there = dict(_conditions(load, function, file))
            test = next((t for t, truth in there.items() if here.get(t, truth) is not truth), None)
            if test is None or file.index.function_of(load) is not function:
                return None
            found = (load, test)
        if not read:
            return None
    return found


def _conditions(node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[tuple[str, bool]]:
    """The names and attributes that are true, or false, where the node runs."""
    for ancestor, child in file.index.ancestors(node):
        if ancestor is function:
            return
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            yield from _known_of(ancestor.test, child in ancestor.body, file)
        elif isinstance(ancestor, ast.IfExp) and child is not ancestor.test:
            yield from _known_of(ancestor.test, child is ancestor.body, file)


def _known_of(test: ast.expr, truth: bool, file: SourceFile) -> Iterator[tuple[str, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _known_of(test.operand, not truth, file)
    elif isinstance(test, ast.BoolOp) and truth == isinstance(test.op, ast.And):
        for value in test.values:
            yield from _known_of(value, truth, file)
    elif isinstance(test, (ast.Name, ast.Attribute)):
        yield file.source(test), truth
