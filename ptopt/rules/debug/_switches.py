"""When is a switch that somebody set for debugging on in every run?"""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.source.index import FUNCTIONS


def always_on(node: ast.AST, file: SourceFile) -> bool:
    """No condition, exception handler or loop over settings stands between the node and its function."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            if not _is_main(ancestor.test) or child not in _body(ancestor):
                return False
        elif isinstance(ancestor, (ast.ExceptHandler, ast.Lambda, ast.BoolOp, ast.Match)):
            return False
    return True


def neighbours(node: ast.AST, file: SourceFile) -> str:
    """Source of the statements in the same block."""
    statement = file.index.statement_of(node)
    parent = file.index.parent(statement)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, None)
        if isinstance(block, list) and statement in block:
            return "\n".join(file.source(s) for s in block if not isinstance(s, (*FUNCTIONS, ast.ClassDef)))
    return file.source(statement)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _body(branch: ast.If | ast.IfExp) -> list[ast.AST]:
    return list(branch.body) if isinstance(branch, ast.If) else []
