from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_call_of, quote
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import assigned
from ptopt.source.frequency import Often


class CountToTestAny(Rule):
    """The positions of a mask are listed only to count them, or to see whether there are any.

    ## What it does
    Finds `len(mask.nonzero())`, `mask.nonzero().numel()`, `.shape[0]` and `.size(0)` of the positions or of `x[mask]`, and
    `mask.sum() > 0`.

    ## Why it is slow
    `nonzero` and `x[mask]` wait for the device to learn the size of their result, and write it. `mask.any()` answers with
    one value, and `mask.sum()` counts without a list. A sum that is compared with 0 adds up 64-bit integers for a yes.

    ## Fix safety
    No fix: the surrounding comparison changes.

    ## Sources
    - [torch.any](https://docs.pytorch.org/docs/stable/generated/torch.any.html)
    """

    id = "PTO476"
    name = "count-to-test-any"
    family = "ops"
    most_stated = 0.45
    partly: ClassVar[frozenset[str]] = frozenset({"torch.count_nonzero"})
    nodes = (ast.Call,)
    calls = frozenset({"nonzero", "argwhere", "masked_select", "sum"})
    when_wrong = "the listed positions are used as well"

    VALID = (
        """
        def rows(mask: torch.Tensor):
            ids = mask.nonzero()
            return ids, len(ids)
        """,
        """
        def positive(loss: torch.Tensor):
            return loss.sum() > 0
        """,
        """
        def enough(mask: torch.Tensor, k):
            return mask.sum() > k
        """,
    )
    INVALID = (
        Invalid("""
            def some(mask: torch.Tensor):
                return len(torch.nonzero(mask)) > 0  # !
                # ~ return mask.any()
        """),
        Invalid("""
            def count(x: torch.Tensor):
                return (x > 0).nonzero().size(0)  # !
        """),
        Invalid("""
            def some(x: torch.Tensor, y):
                if (x == y).sum() > 0:  # !
                    return x
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "nonzero", "argwhere", "masked_select", "sum")
        if op is None or op.is_method and file.values.of(op.operand).kind not in ("tensor", ""):
            return
        if op.name == "sum":
            yield from self._summed(op.call, op.operand, bool(op.rest or op.call.keywords), file)
            return
        if any(k.arg == "as_tuple" for k in op.call.keywords) or (
            op.is_method and op.name == "nonzero" and _array(op.operand, file)
        ):
            return
        size = _size_of(op.call, file)
        if size is None:
            return
        tested = _compared_with_zero(size, file)
        counted = ", or `torch.count_nonzero`" if file.facts.has("torch.count_nonzero") else ""
        yield Problem(
            size,
            f"{quote(file, size)} writes out every position that is set, waiting for the device to learn how many, only to "
            + (
                "see whether there is one. Use `.any()` of the mask."
                if tested
                else f"count them. Use `.sum()` of the mask{counted}."
            ),
            0.45,
            subject=op.operand,
            facts={"lists": 1, "tested": tested},
        )

    def _summed(self, call: ast.Call, mask: ast.expr, partial: bool, file: SourceFile) -> Iterator[Problem]:
        value: ast.expr = call
        parent = file.index.parent(call)
        if isinstance(parent, ast.Attribute) and parent.attr == "item":
            grand = file.index.parent(parent)
            value = grand if isinstance(grand, ast.Call) else call
        if partial or not _is_mask(mask, file) or not _compared_with_zero(value, file):
            return
        if Often.UNKNOWN < file.frequencies.of(call).often <= Often.ONCE or file.index.enclosing(
            call, (ast.Assert,)
        ):
            return
        yield Problem(
            call,
            f"{quote(file, call)} adds up the whole mask as 64-bit integers to see whether it is empty. "
            "`.any()` answers that in one reduction over booleans (`not mask.any()` for a comparison `== 0`).",
            0.35,
            subject=mask,
            facts={"lists": 0, "tested": 1},
        )


def _is_mask(expr: ast.expr, file: SourceFile) -> bool:
    """A comparison of tensors, or a combination of such."""
    if isinstance(expr, ast.Compare):
        return file.values.of(expr).kind == "tensor"
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, (ast.BitAnd, ast.BitOr)):
        return _is_mask(expr.left, file) or _is_mask(expr.right, file)
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Invert):
        return file.values.of(expr).kind == "tensor"
    if isinstance(expr, ast.Name):
        value = assigned(expr, file)
        return isinstance(value, ast.Compare) and _is_mask(value, file)
    op = torch_op(
        expr,
        file,
        "isnan",
        "isinf",
        "eq",
        "ne",
        "gt",
        "ge",
        "lt",
        "le",
        "logical_and",
        "logical_or",
        "logical_not",
    )
    return op is not None


def _array(expr: ast.expr, file: SourceFile) -> bool:
    """May it be an array, whose `nonzero` gives a tuple?"""
    return file.values.of(expr).kind != "tensor"


def _size_of(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """`len(call)`, `call.numel()`, `call.size(0)`, `call.shape[0]`, or None."""
    parent = file.index.parent(call)
    if is_call_of(parent, "len"):
        return parent
    if not isinstance(parent, ast.Attribute):
        return None
    outer = file.index.parent(parent)
    if parent.attr == "shape" and isinstance(outer, ast.Subscript) and isinstance(outer.slice, ast.Constant):
        return outer if outer.slice.value == 0 else None
    if isinstance(outer, ast.Call) and outer.func is parent:
        if parent.attr in ("numel", "nelement") and not outer.args:
            return outer
        first = outer.args[0] if parent.attr == "size" and outer.args else None
        return outer if isinstance(first, ast.Constant) and first.value == 0 else None
    return None


def _compared_with_zero(expr: ast.expr, file: SourceFile) -> bool:
    parent = file.index.parent(expr)
    if isinstance(parent, ast.Compare) and parent.left is expr and len(parent.ops) == 1:
        other = parent.comparators[0]
        zero = isinstance(other, ast.Constant) and other.value in (0, 1)
        one = isinstance(other, ast.Constant) and other.value == 1
        wanted = (ast.GtE, ast.Lt) if one else (ast.Gt, ast.Eq, ast.NotEq, ast.LtE)
        return zero and isinstance(parent.ops[0], wanted)
    return isinstance(parent, (ast.If, ast.While, ast.IfExp)) and parent.test is expr
