"""Whether autograd is on where a call stands, and in what it runs: for rules about autograd of several families."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.index import FunctionNode

_MOST_CALLS = 20  # of one function that are followed
_FARTHEST = 4  # callers of callers that are looked at
_RECORDS = re.compile(r"autocast|amp|nullcontext|no_sync", re.I)  # contexts that leave autograd as it is
_OPAQUE = re.compile(r"ctx|context|mode|grad|eval|infer|stack", re.I)  # contexts that may turn it off


def turns_autograd_off(call: ast.Call, file: SourceFile, depth: int = 2) -> bool:
    """Does the function that the call runs, or one that it calls in turn, turn autograd off itself?"""
    found = file.definition_of(call)
    if found is None:
        return False
    other, function = found
    return other.context.turns_grad_off(function) or (
        depth > 1
        and any(turns_autograd_off(c, other, depth - 1) for c in other.calls.calls_in(function)[:_MOST_CALLS])
    )


def may_be_off(call: ast.Call, file: SourceFile) -> bool:
    """Is autograd off here, or perhaps off, by a context of which nothing is known?"""
    if file.context.grad_off(call) or turns_autograd_off(call, file):
        return True
    for ancestor, _ in file.index.ancestors(call):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            for item in ancestor.items:
                text = file.source(item.context_expr)
                if _OPAQUE.search(text) and not (
                    _RECORDS.search(text) or _leaves_autograd_on(item.context_expr, file)
                ):
                    return True
    return False


def _leaves_autograd_on(context: ast.expr, file: SourceFile) -> bool:
    """Is it a name that only ever holds contexts which autograd records in: `ctx = torch.autocast(...)`?"""
    if not isinstance(context, ast.Name):
        return False
    last = file.bindings.last_before(context)
    given = file.bindings.of(file.index.function_of(last.node), context.id) if last is not None else []
    return bool(given) and all(
        binding.kind == "assign" and binding.value is not None and _records(binding.value, file)
        for binding in given
    )


def _records(value: ast.expr, file: SourceFile) -> bool:
    """`torch.autocast("cuda")`, `nullcontext()`, `model.no_sync()`, or one of them by a condition."""
    if isinstance(value, ast.IfExp):
        return _records(value.body, file) and _records(value.orelse, file)
    return isinstance(value, ast.Call) and bool(_RECORDS.search(file.source(value.func)))


def run_with_autograd_off(function: FunctionNode, file: SourceFile) -> bool:
    """Do the calls that lead to the function, in this file and others, stand where autograd is off?

    All of those that are known to run it; or one that may, by the name of the method: `task.evaluate(...)` of a runner that
    was given the task, or of a base class.
    """
    repository = file.repository
    known: dict[FunctionNode, bool] = {}

    def led_to(function: FunctionNode, file: SourceFile, depth: int) -> bool:
        if function not in known:
            known[function] = False  # functions that call each other end here
            known[function] = answer(function, file, depth)
        return known[function]

    def answer(function: FunctionNode, file: SourceFile, depth: int) -> bool:
        def off(other: SourceFile, call: ast.Call) -> bool:
            around = other.index.function_of(call)
            return other.context.grad_off(call) or (
                depth > 1 and around is not None and led_to(around, other, depth - 1)
            )

        sure = [(file, call) for call in file.calls.callers(function)]
        sure += repository.callers(file, function)
        if sure and all(off(other, call) for other, call in sure[:_MOST_CALLS]):
            return True
        return any(off(other, call) for other, call in repository.dispatches(file, function))

    return led_to(function, file, _FARTHEST)
