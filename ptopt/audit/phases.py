"""Code that trains and evaluates by turns: which of the two a branch is for."""

from __future__ import annotations

import ast
import re

from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.source.index import FUNCTIONS

IS_TRAINING = re.compile(r"(^|\.)(is_?)?train(ing)?$")
_EVALUATES = re.compile(r"^\w+ == '(val|valid|validation|test|eval)'$")


def asks_for_training(test: ast.expr) -> bool | None:
    """True of `is_train` and `mode == "train"`, False of `not is_train`; None of other conditions."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = asks_for_training(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        side = test.comparators[0]
        training = isinstance(side, ast.Constant) and side.value in ("train", "training")
        return isinstance(test.ops[0], ast.Eq) if training else None
    return True if IS_TRAINING.search(dotted_name(test)) else None


def is_of_evaluating_phase(module: Module, block: ast.With) -> bool:
    """`for phase in ["train", "val"]: ... if phase == "val": with torch.no_grad(): ...`, `with torch.set_grad_enabled(phase == "train"):`"""
    given = [call.args for item in block.items if isinstance(call := item.context_expr, ast.Call)]
    if any(asks_for_training(test) for arguments in given for test in arguments):
        return True
    for ancestor, child in module.file.index.ancestors(block):
        if isinstance(ancestor, FUNCTIONS):
            return False
        if not isinstance(ancestor, ast.If) or child is ancestor.test:
            continue
        inside = child in ancestor.body
        trains = asks_for_training(ancestor.test)
        if (trains is not None and trains is not inside) or (
            inside and _EVALUATES.search(text_of(ancestor.test))
        ):
            return True
    return False
