"""Whether the code that a call runs records a graph: for rules about autograd of several families."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile

_MOST_CALLS = 20  # of one function that are followed


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
