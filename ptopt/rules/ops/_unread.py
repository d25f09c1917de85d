"""A quick check for functions that read all that they assign: there, the liveness of names need not be computed."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from ptopt.rules.base import SourceFile
from ptopt.source.bindings import Binding
from ptopt.source.index import FUNCTIONS, FunctionNode, walk
from ptopt.source.liveness import Assigned, assigned_names

_EXITS = frozenset({ast.Return, ast.Raise, ast.Continue, ast.Break})
_line_of_node = attrgetter("lineno")
_line_of_binding = attrgetter("line")
_ASSIGNMENTS = frozenset({ast.Assign, ast.AnnAssign})
_SIMPLE = frozenset({ast.Expr, ast.AugAssign, ast.Pass, ast.Assert, *_EXITS})
_BLOCKS = ("body", "orelse", "finalbody")
# Pairs of lines: what the code comes to next, in a block and in those around it, stands after the first and up to the second.
_Ways = tuple[tuple[int, int], ...]
_MOST_READS = 6  # of a name below an assignment that are looked at


@dataclass(slots=True)
class Unclear:
    """Assignments of a function, but for those whose value a later line of their own block reads, as most do."""

    read_further_on: list[Assigned] = field(default_factory=list)  # in a block around
    open: list[Assigned] = field(default_factory=list)  # line numbers alone do not tell


def unclear(function: FunctionNode, file: SourceFile) -> Unclear:
    """One pass over the statements, with line numbers alone, as all functions of a file are asked about."""
    lines = file.uses.lines
    found = Unclear()
    blocks: list[tuple[list[ast.stmt], _Ways]] = [(function.body, ())]
    while blocks:
        block, around = blocks.pop()
        last = block[-1]
        for statement in block:
            if statement.__class__ in _EXITS:
                last, around = statement, ()
                break
        reached = last.end_lineno or 0
        for statement in block:
            kind = statement.__class__
            if kind in _SIMPLE:
                continue
            here = (statement.end_lineno or 0, reached)
            if kind not in _ASSIGNMENTS:
                ways = (here, *around) if here[0] <= reached else ()  # none: it is not reached
                blocks += [(inner, ways) for inner in _blocks_of(statement)]
                continue
            names = _names_of(statement)  # type: ignore[arg-type]
            for name in names:
                read, bound = lines(name)
                first = bisect_right(read, here[0])
                if first < len(read) and read[first] <= reached:
                    again = bisect_right(bound, here[0])
                    if again == len(bound) or read[first] <= bound[again]:
                        break  # as most: it is read in this block, before it is bound again
            else:
                if around and any(_is_read_on((here, *around), *lines(name)) for name in names):
                    found.read_further_on.append(statement)  # type: ignore[arg-type]
                elif names:
                    found.open.append(statement)  # type: ignore[arg-type]
    return found


def _is_read_on(ways: _Ways, read: Sequence[int], bound: Sequence[int]) -> bool:
    """Does the code come to a line that reads the name before one that binds it?"""
    for after, last in ways:
        place = bisect_right(read, after)
        first = read[place] if place < len(read) else sys.maxsize
        place = bisect_right(bound, after)
        anew = bound[place] if place < len(bound) else sys.maxsize
        if first <= last and first <= anew:
            return True
        if anew <= last:
            return False
    return False


def _names_of(statement: Assigned) -> Collection[str]:
    """The plain names that the assignment gives values; none where it fills an object, which is seen elsewhere."""
    if statement.__class__ is ast.Assign and len(statement.targets) == 1:
        target = statement.targets[0]
        if target.__class__ is ast.Name:  # as most
            return (target.id,)
        if target.__class__ is ast.Attribute or target.__class__ is ast.Subscript:
            return ()
    return assigned_names(statement)


def _blocks_of(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a statement; of a function, which is asked about by itself, none."""
    if isinstance(statement, FUNCTIONS):
        return
    for name in _BLOCKS:
        if block := getattr(statement, name, None):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def are_read(statements: Iterable[Assigned], function: FunctionNode, file: SourceFile) -> bool:
    """Does each of the statements that computes something give a name a value that a later line reads?

    Each such line is an assignment further down, of which the same holds if it does of all that are `unclear`, or none; so the last
    of them is none, and all matter. False where it takes the liveness of the names to tell.
    """
    return all(
        _is_read(statement, function, file) or _computes_nothing(statement) for statement in statements
    )


def _computes_nothing(statement: Assigned) -> bool:
    """`loss = None`: neither does it run anything, nor is anything computed for it."""
    value = statement.value
    return value is None or not any(isinstance(node, ast.Name) for node in walk(value))


def _is_read(statement: Assigned, function: FunctionNode, file: SourceFile) -> bool:
    end = statement.end_lineno or statement.lineno
    return any(_is_read_below(name, statement, end, function, file) for name in _names_of(statement))


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


def _leads_to(statement: ast.stmt, load: ast.Name, file: SourceFile) -> bool:
    """Does the code go on to the read, in the block of the statement or in one around it?"""
    above = file.index.above(load)
    node: ast.AST = statement
    while (parent := file.index.parent(node)) is not None:
        block = next(
            (b for name in _BLOCKS if isinstance(b := getattr(parent, name, None), list) and node in b), []
        )
        rest = block[block.index(node) + 1 :] if block else []
        if parent in above:
            child = above[parent]
            return child in rest and not any(s.__class__ in _EXITS for s in rest[: rest.index(child)])
        if any(s.__class__ in _EXITS for s in rest):
            return False
        node = parent
    return False
