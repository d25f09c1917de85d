"""A quick check for functions that read all that they assign: there, the liveness of names need not be computed."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter

from ptopt.rules.base import SourceFile
from ptopt.source.bindings import Binding
from ptopt.source.index import FunctionNode, walk
from ptopt.source.liveness import Assigned, assigned_names

_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_line_of_node = attrgetter("lineno")
_line_of_binding = attrgetter("line")
_BLOCKS = ("body", "orelse", "finalbody")
_MOST_READS = 6  # of a name below an assignment that are looked at


def all_are_read(function: FunctionNode, file: SourceFile) -> bool:
    """Does each assignment of the function that computes something give a name a value that a later line reads?

    Each such line is an assignment further down, of which the same holds, or none; so the last of them is none, and all
    matter. False where it takes the liveness of the names to tell.
    """
    return all(
        _is_read(statement, function, file) or _computes_nothing(statement)
        for statement in file.once(assignments).get(function, ())
    )


def _computes_nothing(statement: Assigned) -> bool:
    """`loss = None`: neither does it run anything, nor is anything computed for it."""
    value = statement.value
    return value is None or not any(isinstance(node, ast.Name) for node in walk(value))


def assignments(file: SourceFile) -> dict[FunctionNode, list[Assigned]]:
    """Function -> its assignments."""
    table: dict[FunctionNode, list[Assigned]] = {}
    for function, statement in file.index.functions_of(file.index.of_type(ast.Assign, ast.AnnAssign)):
        if function is not None:
            table.setdefault(function, []).append(statement)
    return table


def _is_read(statement: Assigned, function: FunctionNode, file: SourceFile) -> bool:
    end = statement.end_lineno or statement.lineno
    targets = statement.targets if statement.__class__ is ast.Assign else ()
    if len(targets) == 1 and targets[0].__class__ is ast.Name:  # as most
        return _is_read_below(targets[0].id, statement, end, function, file)
    names = assigned_names(statement)  # none: it fills an object, which is seen elsewhere
    return not names or any(_is_read_below(name, statement, end, function, file) for name in names)


def _is_read_below(
    name: str, statement: Assigned, end: int, function: FunctionNode, file: SourceFile
) -> bool:
    """Is the name read below the line, before it gets another value, where the code comes to from the statement?

    Of several reads, one will do: the first may stand in another branch.
    """
    loads = file.uses.loads(function, name)
    place = bisect_right(loads, end, key=_line_of_node)
    if place == len(loads):
        return False
    bindings = file.bindings.of(function, name)
    again = bisect_right(bindings, end, key=_line_of_binding)
    load = loads[place]
    if (again == len(bindings) or bindings[again].line >= load.lineno) and _leads_to(statement, load, file):
        return True  # as most
    return any(
        _is_not_lost(statement, bindings[again:], load, file) and _leads_to(statement, load, file)
        for load in islice(loads, place, place + _MOST_READS)
    )


def _is_not_lost(statement: ast.stmt, bindings: Iterable[Binding], load: ast.Name, file: SourceFile) -> bool:
    """Does none of the bindings that stand before the read replace the value on each way to it?"""
    for binding in bindings:
        if binding.line >= load.lineno:
            break
        node = binding.node
        if not (_reads_before_it_binds(node, load) or _is_passed_by(statement, node, load, file)):
            return False
    return True


def _reads_before_it_binds(node: ast.AST, load: ast.Name) -> bool:
    """Is the read a part of the assignment, `x = norm(x)` on several lines, or is it one that reads what it changes, `x += 1`?"""
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and load.lineno <= (node.end_lineno or 0)


def _is_passed_by(statement: ast.stmt, node: ast.AST, load: ast.Name, file: SourceFile) -> bool:
    """Does a way from the statement to the read, both outside of a branch that the node stands in, pass by that branch?"""
    around = file.index.above(statement)
    for ancestor, child in file.index.ancestors(node):
        if ancestor in around:
            if not isinstance(ancestor, ast.If):
                return False
            return around[ancestor] in ancestor.body and child in ancestor.orelse
        if isinstance(ancestor, ast.If) and not ancestor.orelse and child in ancestor.body:
            return not file.index.within(load, ancestor)
    return False


def _goes_on_to(statement: ast.stmt, file: SourceFile) -> int:
    """The last line of its block that the code comes to from the statement; 0 where that takes a closer look."""
    parent = file.index.parent(statement)
    blocks = file.once(_blocks)
    if parent not in blocks:
        blocks[parent] = list(_ends_of(parent))
    line = statement.lineno
    for last, reached in blocks[parent]:
        if line <= last:
            return reached if line < reached else 0
    return 0


def _blocks(file: SourceFile) -> dict[ast.AST | None, list[tuple[int, int]]]:
    return {}


def _ends_of(parent: ast.AST | None) -> Iterator[tuple[int, int]]:
    """Of each block of the node: its last line, and the last line of the first statement in it that leaves it, if any does."""
    for name in _BLOCKS:
        block = getattr(parent, name, None)
        if isinstance(block, list) and block:
            last = block[-1].end_lineno or 0
            leaves = next((s.end_lineno or 0 for s in block if isinstance(s, _EXITS)), last)
            yield last, leaves


def _leads_to(statement: ast.stmt, load: ast.Name, file: SourceFile) -> bool:
    """Does the code go on to the read, in the block of the statement or in one around it?"""
    if load.lineno <= _goes_on_to(statement, file):
        return True
    above = file.index.above(load)
    node: ast.AST = statement
    while (parent := file.index.parent(node)) is not None:
        block = next(
            (b for name in _BLOCKS if isinstance(b := getattr(parent, name, None), list) and node in b), []
        )
        rest = block[block.index(node) + 1 :] if block else []
        if parent in above:
            child = above[parent]
            return child in rest and not any(isinstance(s, _EXITS) for s in rest[: rest.index(child)])
        if any(isinstance(s, _EXITS) for s in rest):
            return False
        node = parent
    return False
