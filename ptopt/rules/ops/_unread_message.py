"""What is said of statements whose values nobody reads."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ptopt.rules.base import Evidence, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._networks import Work
from ptopt.source.file import remembered
from ptopt.source.frequency import Frequency
from ptopt.source.index import FunctionNode, own_nodes, walk
from ptopt.source.liveness import Assigned, assigned_names

ON_PURPOSE = re.compile(r"^_|unused|ignore|dummy|warm|trash|discard", re.I)
_LOSS = re.compile(r"loss", re.I)


@dataclass(frozen=True, slots=True)
class Waste:
    """Statements whose values nobody reads: `end` is the last of them, `works` what they run.

    `statements`: from the first expensive one to the end; `operands`: what is computed for them alone. `opposite`: the read that
    stands under the opposite condition, and that condition.
    """

    end: Assigned
    works: list[Work]
    statements: tuple[Assigned, ...]
    operands: tuple[Assigned, ...] = ()
    opposite: tuple[ast.Name, str] | None = None


def said_of(
    waste: Waste, function: FunctionNode, frequency: Frequency, file: SourceFile
) -> tuple[str, tuple[Evidence, ...]]:
    """The message, and the lines that prove it."""
    names = sorted(name for name in assigned_names(waste.end) if not ON_PURPOSE.search(name))
    named = " and ".join(f"`{name}`" for name in names)
    first, others = waste.works[0].call, len(waste.works) - 1
    at = f" (line {first.lineno})" if first.lineno != waste.end.lineno else ""
    more = f" and {others} other call{'s' if others > 1 else ''}" if others else ""
    when = frequency.reason or f"on each call of `{function.name}`"
    runs = f"{quote(file, first)}{at}{more} run{'' if others else 's'} for nothing {when}"
    evidence = tuple(
        Evidence(work.call.lineno, "runs for nothing")
        for work in waste.works
        if work.call.lineno != waste.end.lineno
    )
    if waste.opposite is not None:
        read, test = waste.opposite
        return (
            (
                f"{named} is computed where `{test}` decides one way and read (line {read.lineno}) only where it decides the other: "
                f"{runs}. The two conditions must agree."
            ),
            (Evidence(read.lineno, "the read under the opposite condition"),),
        )
    others_summed = _sum_of_others(waste.end, function, file)
    if others_summed is not None:
        return (
            (
                f"{named} is in no sum: line {others_summed.lineno} adds up the other terms without it, and nothing else reads it, so "
                f"{runs}. Add it, or delete it with what it is computed of."
            ),
            (*evidence, Evidence(others_summed.lineno, "the sum of the other terms")),
        )
    again = _next_value(names, waste.end, function, file)
    if again:
        return (
            f"Line {again} gives {named} another value before anything reads this one: {runs}. Delete it.",
            (*evidence, Evidence(again, "gets another value here")),
        )
    what = (
        "Delete the call, or use its result"
        if len(waste.statements) == 1
        else "Delete it with what it is computed of, or use it"
    )
    value = "this value of " if any(file.uses.loads(function, name) for name in names) else ""
    return f"Nothing reads {value}{named}: {runs}. {what}.", evidence


def shown_by(waste: Waste, function: FunctionNode, file: SourceFile) -> list[ast.AST]:
    """The other lines that show the problem: the sum without the term, the read under the opposite condition."""
    if waste.opposite is not None:
        return [waste.opposite[0]]
    summed = _sum_of_others(waste.end, function, file)
    return [summed] if summed is not None else []


def _sum_of_others(end: Assigned, function: FunctionNode, file: SourceFile) -> ast.BinOp | None:
    """A later sum of losses, where the unread value is named like one."""
    if not any(_LOSS.search(name) for name in assigned_names(end)):
        return None
    return next((s for s in _loss_sums(function, file) if s.lineno > end.lineno), None)


@remembered
def _loss_sums(function: FunctionNode, file: SourceFile) -> tuple[ast.BinOp, ...]:
    """The sums of several losses in the function."""
    sums = []
    for node in own_nodes(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            above = file.index.parent(node)
            if not (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add)):
                terms = [n.id for n in walk(node) if isinstance(n, ast.Name) and _LOSS.search(n.id)]
                sums += [node] if len(terms) > 1 else []
    return tuple(sums)


def _next_value(names: Sequence[str], end: Assigned, function: FunctionNode, file: SourceFile) -> int:
    """The line that gives the one name its next value; 0 where it stands in another branch, or where the name is never read."""
    if len(names) != 1 or not file.uses.loads(function, names[0]):
        return 0
    bindings = file.bindings.of(function, names[0])
    place = bisect_right(bindings, end.end_lineno or end.lineno, key=lambda b: b.line)
    if place == len(bindings):
        return 0
    around = dict(file.index.ancestors(end))
    for ancestor, child in file.index.ancestors(bindings[place].node):
        if ancestor in around:
            other = around[ancestor]
            apart = isinstance(ancestor, ast.If) and (child in ancestor.body) != (other in ancestor.body)
            return 0 if apart else bindings[place].line
    return 0
