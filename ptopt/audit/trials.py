"""Scripts that make a few steps to measure them: they train nothing."""

from __future__ import annotations

import ast
import re

from ptopt.audit.calling import callers
from ptopt.audit.measures.saving import NOTHING_SAVED
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Setup
from ptopt.audit.values import EntryPoint, Measure
from ptopt.source.index import Loop

FEW = 200  # steps
_DEEPEST = 3  # calls of calls
_MEASURES = (
    "max_memory_allocated", "max_memory_reserved", "reset_peak_memory_stats", "memory_stats", "mem_get_info", "do_bench", "Timer",
    "synchronize",
)  # fmt: skip
_NAME = re.compile(
    r"(^|_)(measure|measurement|bench|benchmark|profile|profiling|profiler|speed|throughput|latency|vram|memory|perf)(_|$)"
)


def is_trial(setup: Setup, measures: tuple[Measure, ...]) -> bool:
    """Does the script measure, save nothing, and stop after a number of steps that is known to be small?"""
    if setup.start is None or not any(m.key == "saving" and m.detail == NOTHING_SAVED for m in measures):
        return False
    name = setup.live.start.path.rpartition("/")[2].rpartition(".")[0].lower().replace("-", "_")
    measured = any(module in (setup.live.start, setup.start[0]) for module, _ in setup.calls(*_MEASURES))
    return (measured or bool(_NAME.search(name))) and _makes_few_steps(setup, *setup.start, 0)


def without_trials(entries: list[EntryPoint]) -> tuple[list[EntryPoint], list[str]]:
    """Without them where other scripts train; and which they are, in words."""
    left = [entry for entry in entries if not entry.trial]
    if not left:
        return entries, []
    return left, [f"{e.path}: a few steps that are measured, and no training" for e in entries if e.trial]


def _makes_few_steps(setup: Setup, module: Module, call: ast.AST, depth: int, within: bool = False) -> bool:
    """Is the innermost loop around the step one of few passes, and none around that one of many: also of those that call it?

    `within`: a short loop was met on the way.
    """
    for loop in module.file.index.loops_of(call):
        short = _is_short(setup, module, loop)
        if not short and (not within or _may_be_long(loop)):
            return False
        within = True
    function = module.file.index.function_of(call)
    if function is None or depth >= _DEEPEST:
        return within
    sites = list(callers(setup.live, function, module))
    if not sites:
        return within
    return all(_makes_few_steps(setup, other, site, depth + 1, within) for other, site, _ in sites)


def _may_be_long(loop: Loop) -> bool:
    """Of a loop around the steps: not one over sizes or names to try."""
    return isinstance(loop, ast.While) or bool(re.search(r"epoch|range\(|count\(|load", text_of(loop.iter)))


def _is_short(setup: Setup, module: Module, loop: Loop) -> bool:
    """`for _ in range(20)`, `for i, x in enumerate(loader): if i >= steps: break`"""
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        for part in ast.walk(loop.iter):
            if isinstance(part, ast.Call) and text_of(part.func).rpartition(".")[2] in ("range", "islice"):
                ends = part.args[-1:] if text_of(part.func).endswith("islice") else part.args[:2][-1:]
                return bool(ends) and _is_few(setup, module, ends[0])
    return any(
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.ops[0], (ast.GtE, ast.Gt, ast.Eq))
        and any(isinstance(inner, ast.Break) for inner in statement.body)
        and _is_few(setup, module, statement.test.comparators[0])
        for statement in loop.body
    )


def _is_few(setup: Setup, module: Module, number: ast.expr) -> bool:
    value = setup.value(module, number)
    return value.known and isinstance(value.value, int) and 0 < value.value <= FEW
