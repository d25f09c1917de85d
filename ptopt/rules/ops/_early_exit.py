"""Work whose result only the code behind an early exit reads: `audio = vocoder(mel)` before `if batch_idx != 0: return`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import TEXTBOOK, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._pure import costly
from ptopt.rules.ops._wasted import (
    expensive,
    is_only_work,
    removable,
    runs_for_effect,
    what_matters,
    works_in,
)
from ptopt.rules.shared.flow import block_of
from ptopt.source.calls import last_name
from ptopt.source.frequency import Often
from ptopt.source.index import walk
from ptopt.source.liveness import assigned_names

_NEAR = 20  # statements before the exit that are looked at
_HEAVY = 3  # a product, a convolution, a submodule
_EXITS = (ast.Return, ast.Continue)
_COUNTER = re.compile(
    r"^(batch_(idx|nb|i|index|id|num|ndx)|idx|index|i|step|steps|iter|iteration|n_iter|it|global_step|cur_step|batch_idx_\w+)$",
    re.I,
)
_OPTION = re.compile(
    r"^(training|return_\w+|\w*only\w*|use_\w+|compute_\w+|with_\w+|output_\w+|need_\w+|get_\w+|inference|is_train\w*|is_test\w*|"
    r"test_mode|train_mode|eval_mode|only_\w+|is_eval\w*|deterministic|greedy|sample|evaluate|no_\w+|skip_\w+|do_\w+|phase|mode|split|stage)$"
)


@dataclass(frozen=True, slots=True)
class Early:
    """Statements that run before an exit which does not need them, and their expensive calls.

    `often`: how sure it is, by the condition, that the exit is taken often.
    """

    statements: list[ast.stmt]
    calls: list[ast.expr]
    networks: int
    often: float
    leaves: str  # "return" | "continue"
    test: str


def needed_only_behind(node: ast.If, file: SourceFile) -> Early | None:
    """The expensive statements before the condition whose results are read only where it does not leave."""
    if node.orelse or not isinstance(node.body[-1], _EXITS):
        return None
    often = _often(node.test, file)
    block = block_of(node, file)
    function = file.index.function_of(node)
    if not often or not block or function is None or node in (block[0], block[-1]):
        return None
    place = block.index(node)
    before = block[max(0, place - _NEAR) : place]
    early = {s: calls for s in _perhaps_unneeded(before, node) if (calls := _expensive(s, file))}
    found = what_matters(function, file) if early else None
    if found is None or runs_for_effect(function, file):
        return None
    needed = found.before[node.body[0]] | found.reads(node.test)
    wasted: list[ast.stmt] = []
    for statement in reversed(before):
        names = assigned_names(statement)
        if statement in early and names.isdisjoint(needed) and not names.isdisjoint(found.after[statement]):
            wasted.insert(0, statement)
        needed = found.needed_for([statement], needed)
    frequency = file.frequencies.of(node)
    if not wasted or Often.UNKNOWN < frequency.often <= Often.EPOCH:
        return None
    calls = [call for s in wasted for call in early[s]]
    works = [w for call in calls if isinstance(call, ast.Call) and (w := expensive(call, file)) is not None]
    if works and all(w.kind == "host" for w in works) and not frequency.in_worker:
        return None
    leaves = "return" if isinstance(node.body[-1], ast.Return) else "continue"
    return Early(
        wasted,
        calls,
        len(works),
        often if works else min(often, 0.5),
        leaves,
        quote(file, node.test, 50)[1:-1],
    )


def is_taken_often(node: ast.If) -> bool:
    """Does a counter decide whether the code leaves here?"""
    return not node.orelse and isinstance(node.body[-1], _EXITS) and any(map(_asks_counter, walk(node.test)))


def _perhaps_unneeded(before: list[ast.stmt], node: ast.If) -> list[ast.stmt]:
    """The assignments whose names the exit does not read: only of these it is found out what they run."""
    needed = set(_names(node.test, ast.Load))
    if isinstance(node.body[0], (ast.Return, ast.Expr)):
        needed |= _names(node.body[0], ast.Load)
    found: list[ast.stmt] = []
    for statement in reversed(before):
        names = assigned_names(statement)
        if not names:
            needed -= _names(statement, ast.Store, ast.Del)
        elif names.isdisjoint(needed):
            found.append(statement)
        else:
            needed = (needed - names) | _names(statement, ast.Load)
    return found[::-1]


def _names(node: ast.AST, *contexts: type[ast.expr_context]) -> set[str]:
    return {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, contexts)}


def _expensive(statement: ast.stmt, file: SourceFile) -> list[ast.expr]:
    """The expensive calls of an assignment that does nothing else: networks, decoding, products of tensors."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return []
    if not assigned_names(statement):
        return []
    works = [work.call for work in works_in(statement.value, file)]
    if works:
        return [*works] if is_only_work(statement.value, file) else []
    costs = costly(file)
    heavy = [n for n in walk(statement.value) if isinstance(n, ast.expr) and costs.get(n, 0) >= _HEAVY]
    return heavy if heavy and removable(statement.value, file) else []


def _often(test: ast.expr, file: SourceFile) -> float:
    """How often the exit is taken, as far as its condition tells: of a counter nearly always, of an option often; 0 unknown."""
    if any(_asks_counter(n) for n in walk(test)):
        return TEXTBOOK
    leaf = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if isinstance(leaf, ast.Compare) and isinstance(leaf.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        leaf = (
            leaf.left
            if isinstance(leaf.comparators[0], ast.Constant) and leaf.comparators[0].value is not None
            else test
        )
    if isinstance(leaf, (ast.Name, ast.Attribute)):
        return 0.6 if _OPTION.search(last_name(leaf)) else 0.0
    return 0.0 if any(_asks_for_nothing(n) for n in walk(test)) else 0.4


def _asks_counter(node: ast.AST) -> bool:
    """`batch_idx != 0`, `step > 10`, `step % 100`"""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.NotEq, ast.Gt, ast.GtE)):
        return bool(_COUNTER.search(last_name(node.left)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return bool(_COUNTER.search(last_name(node.left)))
    return False


def _asks_for_nothing(node: ast.AST) -> bool:
    """`x is None`, `len(boxes) == 0`: what is hardly ever so"""
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value in (None, 0, "") for side in node.comparators
    )
