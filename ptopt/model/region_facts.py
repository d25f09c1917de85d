"""Static facts about some lines, as short texts for a prompt."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode

MAX_RANGES = 3  # of lines in one fact
_STEP = "training step"
_RARE = "rare"
_FORWARD = "forward pass"
_ITEM = "loads an item"
_EVALUATION = "evaluation"
_NO_GRADIENTS = "no gradients"
_OFTEN = {
    Often.RARELY: "rarely",
    Often.ONCE: "once",
    Often.EPOCH: "once an epoch",
    Often.EVALUATION: "for each batch of an evaluation",
    Often.STEP: "on every step",
    Often.LAYER: "for each layer or micro-step",
    Often.ELEMENT: "for each sample or element",
}
_ORDER = (_STEP, _RARE, _FORWARD, _ITEM, _EVALUATION, _NO_GRADIENTS)


def facts_of(source: SourceFile, start: int, end: int) -> tuple[str, ...]:
    """The static facts about these lines, in shown numbers."""
    where: dict[str, set[int]] = {}
    code: set[int] = set()
    waits: set[int] = set()
    often = ""
    try:
        for node in statements(source, start, end):
            here = range(node.lineno, min(node.end_lineno or node.lineno, end) + 1)
            code.update(here)
            for what in _statement_facts(source, node):
                where.setdefault(what, set()).update(here)
        function = function_between(source, start, end)
        often = _OFTEN.get(source.frequencies.of_function(function).often, "") if function else ""
        waits = (
            {source.index.statement_of(n).lineno for n in source.waits.in_iteration(function)}
            if function
            else set()
        )
    except RecursionError:  # expressions nested deeper than Python can print
        where, waits = {}, set()
    facts = [f"{_ranges(where[what], code, start)}: {what}" for what in _ORDER if what in where]
    if often:
        facts.insert(0, f"runs {often}")
    if waits:
        facts.append(f"Python waits for the GPU: {_ranges(waits, code | waits, start)}")
    facts.append("may run on a GPU" if source.uses_accelerator else "names no GPU")
    pin = source.own_facts.describe("torch").partition(" (")[0]
    return (*facts, pin) if pin else tuple(facts)


def _statement_facts(source: SourceFile, node: ast.stmt) -> Iterator[str]:
    context = source.context
    step = context.training_step(node)
    if source.guards.rare(node, step.node if step else None) is not None:
        yield _RARE
    elif step is not None and not step.full_batch:
        yield _STEP
    elif context.forward_of(node) is not None:
        yield _FORWARD
    elif context.is_item_code(node) is not None:
        yield _ITEM
    function = source.index.function_of(node)
    if (function is not None and context.is_eval_function(function)) or any(
        context.is_eval_loop(loop) for loop in source.index.loops_of(node)
    ):
        yield _EVALUATION
    if context.grad_off(node):
        yield _NO_GRADIENTS


def function_between(source: SourceFile, start: int, end: int) -> FunctionNode | None:
    """The outermost function whose lines these are."""
    found = source.once(_by_end).get(end, ())
    return next((f for f in found if start <= f.lineno), None)


def _by_end(source: SourceFile) -> dict[int | None, list[FunctionNode]]:
    table: dict[int | None, list[FunctionNode]] = {}
    for function in source.calls.functions:
        table.setdefault(function.end_lineno, []).append(function)
    return table


def statements(source: SourceFile, start: int, end: int) -> Iterator[ast.stmt]:
    """The innermost statements of the lines, without the blocks around them."""
    stack: list[ast.AST] = [source.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt) and (node.lineno > end or (node.end_lineno or node.lineno) < start):
            continue  # a file has as many regions as functions: each must not walk all of it
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                stack += children
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and start <= node.lineno <= end:
            yield node


def _ranges(lines: set[int], code: set[int], start: int) -> str:
    """Shown numbers as in "lines 3-5, 9". A range reaches over lines that hold no statement; at most `MAX_RANGES` are listed."""
    ranges: list[list[int]] = []
    inside = False
    for line in sorted(code):
        if line not in lines:
            inside = False
        elif inside:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
            inside = True
    shown = [(a - start + 1, b - start + 1) for a, b in ranges[:MAX_RANGES]]
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in shown)
    word = "line" if text.isdigit() else "lines"
    return f"{word} {text} and others" if len(ranges) > MAX_RANGES else f"{word} {text}"
