from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote, replace_node
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import outer_call
from ptopt.source.calls import called_name

_OF_FLOATS = frozenset({"mean", "std", "var"})
_CASTS = frozenset({"float", "int", "long", "double"})


class CastToCount(Rule):
    """A comparison is cast to numbers only to be counted along a dimension.

    ## What it does
    Finds `(a == b).float().sum(dim=-1)` and `(x > t).int().sum(...)`, where the comparison broadcasts or the count is taken
    along a dimension.

    ## Why it is slow
    The cast writes a tensor four or eight times the size of the comparison, which the sum reads once. `sum` counts
    booleans as they are.

    ## When this is wrong
    When the count must be a float32 for what follows and is not divided: cast the small result instead.

    ## Fix safety
    Unsafe: the count is an int64 instead of a float32.

    ## Sources
    - [torch.sum](https://docs.pytorch.org/docs/stable/generated/torch.sum.html)
    """

    id = "PTO818"
    name = "cast-to-count"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({"sum"})
    requires = ("float", "int", "long", "double")
    when_wrong = "the masks are small"

    VALID = (
        """
        correct = (pred == label).float().sum()
        """,
        """
        mean = (a == b).float().mean(dim=1)
        """,
        """
        total = x.float().sum(dim=1)
        """,
        """
        hits = (top == labels[:, None]).float().sum(dim=-1).mean()
        """,
    )
    INVALID = (
        Invalid("""
            same = (a[:, :, None] == b[:, None]).float().sum(dim=-1)  # !
            # + same = (a[:, :, None] == b[:, None]).sum(dim=-1)
        """),
        Invalid("""
            inside = torch.sum((distance < radius).long(), dim=1)  # !
            # + inside = torch.sum((distance < radius), dim=1)
        """),
        Invalid("""
            lengths = (tokens != pad).int().sum(1)  # !
            # + lengths = (tokens != pad).sum(1)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "sum")
        if (
            op is None
            or not isinstance(op.operand, ast.Call)
            or not isinstance(op.operand.func, ast.Attribute)
        ):
            return
        cast, mask = op.operand, op.operand.func.value
        if (
            op.operand.func.attr not in _CASTS
            or cast.args
            or cast.keywords
            or not isinstance(mask, ast.Compare)
        ):
            return
        if file.values.of(mask).kind == "array" or any(k.arg == "dtype" for k in op.call.keywords):
            return
        text = file.source(mask)
        broadcasts = "None" in text or "unsqueeze" in text
        along = op.argument(0, "dim", "axis") is not None
        if not along and not broadcasts:
            return  # one number of a batch of labels
        outer = outer_call(op.call, file)
        if outer is not None and called_name(outer) in _OF_FLOATS:
            return  # there is no mean of whole numbers
        whole = op.operand.func.attr in ("int", "long")
        start, _end = file.bounds(mask)
        wrapped = text if file.data[start - 1 : start] != b"(" else f"({text})"
        fix = Fix(Safety.UNSAFE, (replace_node(file, cast, wrapped),), "a count in int64 will do")
        yield Problem(
            node,
            f"{quote(file, cast, 50)} writes a number for each boolean only for the sum to read it; `sum` counts booleans "
            f"directly. Leave `.{op.operand.func.attr}()` out" + ("." if whole else ", or cast the count."),
            0.4,
            fix=fix,
            subject=mask,
            facts={"broadcasts": broadcasts, "along": along},
        )
