"""When is a switch that somebody set for debugging on in every run?"""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, is_main_test

_GPU_OPTION = re.compile(r"cuda|gpu|cpu|device", re.I)


def always_on(node: ast.AST, file: SourceFile) -> bool:
    """No condition, exception handler or loop over settings stands between the node and its function."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            every_run = is_main_test(ancestor.test) or _asks_for_gpu(ancestor.test)
            if not every_run or child not in _body(ancestor):
                return False
        elif isinstance(ancestor, (ast.ExceptHandler, ast.Lambda, ast.BoolOp, ast.Match)):
            return False
    return True


def neighbours_mention(pattern: re.Pattern[str], node: ast.AST, file: SourceFile) -> bool:
    """Does the pattern occur in the statements of the same block?"""
    statement = file.index.statement_of(node)
    parent = file.index.parent(statement)
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, None)
        if parent is not None and isinstance(block, list) and statement in block:
            return _block_mentions(pattern, parent, field, file)
    return bool(pattern.search(file.source(statement)))


@remembered
def _block_mentions(pattern: re.Pattern[str], parent: ast.AST, field: str, file: SourceFile) -> bool:
    block = (s for s in getattr(parent, field) if not isinstance(s, (*FUNCTIONS, ast.ClassDef)))
    return bool(pattern.search("\n".join(map(file.source, block))))


def _asks_for_gpu(test: ast.expr) -> bool:
    """Is the branch taken in each run on a GPU: `torch.cuda.is_available()`, alone or beside options that name the device?"""
    asked = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    options = [
        one for one in asked if not (isinstance(one, ast.Call) and last_name(one.func) == "is_available")
    ]
    return len(options) < len(asked) and all(
        _GPU_OPTION.search(last_name(one.operand if isinstance(one, ast.UnaryOp) else one)) for one in options
    )


def _body(branch: ast.If | ast.IfExp) -> list[ast.AST]:
    return list(branch.body) if isinstance(branch, ast.If) else []
