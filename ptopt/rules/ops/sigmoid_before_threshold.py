from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.rules.shared.flow import reads
from ptopt.source.calls import last_name

_AT = {
    "sigmoid": lambda p: math.log(p / (1 - p)),
    "exp": math.log,
    "sqrt": lambda p: p * p,
    "tanh": math.atanh,
}
_CLASSES = {"torch.nn.Sigmoid": "sigmoid", "torch.nn.Tanh": "tanh"}


class SigmoidBeforeThreshold(Rule):
    """A monotone function of a whole tensor is computed only to compare with a number.

    ## What it does
    Finds `torch.sigmoid(x) > 0.5`, `x.exp() < 2` and the like, also through a name that is read only so.

    ## Why it is slow
    The function is evaluated for every element and its result, as large as x, is written and read once. x itself can be compared with
    the number that the function maps to the threshold.

    ## When this is wrong
    When the probabilities are needed elsewhere, or a difference in the last digit matters.

    ## Fix safety
    There is no fix: rounding at the threshold may differ.

    ## Sources
    - [torch.sigmoid](https://docs.pytorch.org/docs/stable/generated/torch.sigmoid.html)
    """

    id = "PTO487"
    name = "sigmoid-before-threshold"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({*_AT, *(name.rpartition(".")[2] for name in _CLASSES)})
    when_wrong = "the probabilities are needed elsewhere"

    VALID = (
        """
        masks = logits > 0
        """,
        """
        probabilities = logits.sigmoid()
        masks = probabilities > 0.5
        score = probabilities.mean()
        """,
        """
        near = torch.sqrt(distances) / 2
        """,
    )
    INVALID = (
        Invalid("""
            masks = torch.sigmoid(logits) > 0.5  # !
        """),
        Invalid("""
            def accuracy(logits: torch.Tensor, y):
                predicted = torch.sigmoid(logits)  # !
                return ((predicted > 0.5) == y).float().mean()
        """),
        Invalid("""
            def masks(logits: torch.Tensor):
                return (logits.sigmoid() >= 0.3).float()  # !
        """),
        Invalid("""
            def masks(logits: torch.Tensor, threshold=0.5):
                return nn.Sigmoid()(logits) > threshold  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = _layer(node, file) or torch_op(node, file, *_AT)
        if (
            op is None
            or op.rest
            or (op.is_method and op.name != "sigmoid" and not file.values.is_tensor(op.operand))
        ):
            return
        uses = reads(op.call, file)
        limits = [_limit(use, file) for use in uses]
        if not uses or any(limit is None for limit in limits):
            return
        limit = limits[0] or ""
        moved = _moved(op.name, limit)
        if not moved:
            return
        where = f" on line {uses[0].lineno}" if uses[0] is not op.call else ""
        yield Problem(
            op.call,
            f"`{op.name}` of every element of {quote(file, op.operand, 40)} is computed only to be compared with `{limit}`{where}. "
            f"Compare {quote(file, op.operand, 40)} itself with {moved}: the function is monotone.",
            0.4,
            cause=file.index.statement_of(op.call),
            subject=op.operand,
            facts={"through_name": bool(where), "half": limit == "0.5"},
        )


def _layer(node: ast.AST, file: SourceFile) -> Op | None:
    """`nn.Sigmoid()(x)`, of its inner call."""
    outer = file.index.parent(node)
    if not (isinstance(node, ast.Call) and isinstance(outer, ast.Call) and outer.func is node):
        return None
    name = _CLASSES.get(file.imports.qualified(node.func), "")
    return Op(name, outer, outer.args[0], tuple(outer.args[1:]), False) if name and outer.args else None


def _moved(function: str, limit: str) -> str:
    """What the input is compared with instead; "" where no number is."""
    try:
        value = float(limit)
    except ValueError:
        # `torch.logit` is infinite at 0 and 1, as it should be; `math.log(p / (1 - p))` fails there.
        return f"`torch.logit(torch.as_tensor({limit}))`" if function == "sigmoid" else ""
    try:
        return f"`{_AT[function](value):.4g}`"
    except (ValueError, ZeroDivisionError):
        return ""  # every element lies on one side


def _limit(use: ast.expr, file: SourceFile) -> str | None:
    """The number, or named threshold, that it is compared with."""
    parent = file.index.parent(use)
    op = torch_op(
        file.index.parent(parent) if isinstance(parent, ast.Attribute) else None, file, "gt", "ge", "lt", "le"
    )
    other: ast.expr | None = None
    if op is not None and len(op.rest) == 1:
        other = op.rest[0]
    elif (
        isinstance(parent, ast.Compare)
        and len(parent.ops) == 1
        and isinstance(parent.ops[0], (ast.Gt, ast.GtE, ast.Lt, ast.LtE))
    ):
        other = parent.comparators[0] if parent.left is use else parent.left
    if isinstance(other, ast.Constant) and type(other.value) in (int, float):
        return str(other.value)
    if isinstance(other, (ast.Name, ast.Attribute)) and "thr" in last_name(other).lower():
        return file.source(other) if file.values.of(other).kind in ("scalar", "") else None
    return None
