"""Puts one call in the place of statements that spell attention out."""

from __future__ import annotations

import ast

from ptopt.rules.attention._scores import Scores
from ptopt.rules.attention._weights import Mixed
from ptopt.rules.base import Edit, Fix, Safety, SourceFile


def fix_for(scores: Scores, mixed: Mixed, softmax: ast.Call, call: str, file: SourceFile) -> Fix | None:
    """One call in the place of neighbouring statements that do nothing else."""
    statements = [statement_around(n, file) for n in (scores.product, softmax, mixed.product)]
    first, _, last = statements
    if first is None or last is None:
        return None
    block = getattr(file.index.parent(last), "body", None)
    named = file.imports.imports("torch.nn.functional") or "torch" in file.imports.local_names()
    simple = named and mixed.gate is None and not scores.reshaped and not scores.einsum and "~" not in call
    if not simple or not isinstance(block, list) or first not in block or last not in block or first is last:
        return None
    between = block[block.index(first) : block.index(last)]
    if not all(isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) for s in between):
        return None
    if (
        len({s.targets[0].id for s in between}) > 2
        or len(between) > 4
        or b"#" in file.data[file.bounds(first)[0] : file.bounds(last)[0]]
    ):
        return None
    if any(k not in ("drop", "keep") for k, _ in scores.masks) or not all(
        _in_chain(s, scores, mixed, softmax, file) for s in between
    ):
        return None
    start = file.bounds(first)[0]
    out, end = file.bounds(mixed.product)
    before = file.data[max(0, out - 2) : out]
    if before[-1:] == b"(" and file.data[end : end + 1] == b")" and before[:1].isspace():
        out, end = out - 1, end + 1  # `(att @ v).transpose(1, 2)`: a call needs no parentheses
    prefix = file.data[file.bounds(last)[0] : out].decode("utf-8", "surrogatepass")
    return Fix(
        Safety.UNSAFE,
        (Edit(start, end, f"{prefix}{call}"),),
        "results agree up to rounding, and no row is masked out completely",
    )


def _in_chain(
    statement: ast.Assign, scores: Scores, mixed: Mixed, softmax: ast.Call, file: SourceFile
) -> bool:
    """Does the statement take part in the attention, and in nothing else?"""
    if any(file.index.within(n, statement) for n in (scores.product, softmax)):
        return True
    if mixed.dropout is not None and file.index.within(mixed.dropout, statement):
        return True
    parts = [mask for _, mask in scores.masks] + [factor for factor, _ in scores.scales]
    return any(file.index.within(part, statement) for part in parts)


def statement_around(node: ast.AST, file: SourceFile) -> ast.stmt | None:
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return ancestor
    return None
