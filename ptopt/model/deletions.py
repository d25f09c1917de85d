"""Fixes that only take code away: the shortest answer to every problem, and right for few rules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

DELETABLE = frozenset(
    {
        "anomaly-detection-on",
        "blocking-launches",
        "cache-cleared-every-step",
        "profiler-around-training",
        "synchronize-every-step",
    }
)
"""Names of the rules whose problem is a statement that computes nothing: without it the program does the same."""


def takes_away(rule: str, before: ast.Module, after: ast.Module) -> bool:
    """Does the fix of this rule (by name) do nothing but remove statements that the program needs?"""
    return rule not in DELETABLE and only_deletes(before, after)


def only_deletes(before: ast.Module, after: ast.Module) -> bool:
    """Is `after` what is left when statements of `before`, or the headers of blocks, are removed?"""
    return Counter(_statements(after)) < Counter(_statements(before))


def _statements(tree: ast.Module) -> Iterator[str]:
    """Each statement as text, blocks by their header alone; `pass` is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield type(node).__name__ + "".join(
                f" {name}={_dumped(value)}" for name, value in ast.iter_fields(node) if name not in _BLOCKS
            )


_BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})


def _dumped(value: object) -> str:
    if isinstance(value, ast.AST):
        return ast.dump(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_dumped, value))}]"
    return repr(value)
