from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, torch_op
from ptopt.rules.shared.flow import added_dimension, outer_call, reads

_STEPS = ("pow", "square", "abs", "abs_", "pow_")
_REDUCTIONS = ("sum", "norm", "mean", "vector_norm")


class PairwiseDifference(Rule):
    """The differences of all pairs of vectors are written out to get their distances.

    ## What it does
    Finds `(x[:, None] - y[None]).pow(2).sum(-1)`, also with `unsqueeze`, `abs`, `** 2`, `norm(dim=-1)` and through a name.

    ## Why it is slow
    The difference holds n times m times d numbers, and so does its square; autograd keeps them too. `torch.cdist` computes
    the n times m distances without them.

    ## When this is wrong
    When n times m times d is small, or the exact order of rounding matters: `cdist` may use a matrix product.

    ## Fix safety
    There is no fix: the shapes must be seen.

    ## Sources
    - [torch.cdist](https://docs.pytorch.org/docs/stable/generated/torch.cdist.html)
    """

    id = "PTO817"
    name = "pairwise-difference"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.BinOp,)
    triggers = ("unsqueeze(", "None")
    requires = ("sum", "norm", "mean")
    when_wrong = "there are few pairs, or the last digits matter"

    VALID = (
        """
        distance = torch.cdist(x, y)
        """,
        """
        offset = x[:, None] - y[None]
        angle, distance = torch.atan2(offset[..., 1], offset[..., 0]), offset.norm(dim=-1)
        """,
        """
        centred = (x - mean.unsqueeze(0)).pow(2).sum(-1)
        """,
    )
    INVALID = (
        Invalid("""
            distance = (x[:, None] - y[None, :]).pow(2).sum(-1)  # !
            # ~ distance = torch.cdist(x, y).pow(2)
        """),
        Invalid("""
            def codes(z, codebook):
                diff = z.unsqueeze(1) - codebook.unsqueeze(0)  # !
                return diff.norm(dim=-1).argmin(1)
        """),
        Invalid("""
            cost = torch.sum(torch.abs(a.unsqueeze(2) - b.unsqueeze(1)), dim=-1)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
            return
        left, right = added_dimension(node.left, file), added_dimension(node.right, file)
        if left is None or right is None or left == right or {left, right} & {-1}:
            return
        uses = reads(node, file)
        if len(uses) != 1:
            return
        value: ast.expr = uses[0]
        steps, names = 0, ""
        while True:
            parent = file.index.parent(value)
            op = torch_op(outer_call(value, file), file, *_STEPS, *_REDUCTIONS) or torch_op(
                parent, file, *_STEPS, *_REDUCTIONS
            )
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow) and parent.left is value:
                value = parent
            elif op is not None and op.operand is value and op.name in _STEPS:
                value, names = op.call, names + op.name
            else:
                break
            steps += 1
        if (
            op is None
            or op.operand is not value
            or op.name not in _REDUCTIONS
            or (not steps and "norm" not in op.name)
        ):
            return
        dim = op.argument(1 if "norm" in op.name and op.rest[:1] and len(op.rest) > 1 else 0, "dim", "axis")
        if int_literal(dim) not in (-1, 2, 3):
            return
        absolute = "abs" in names
        how = "`torch.cdist(x, y, p=1)`" if absolute else "`torch.cdist(x, y)`"
        how += ", squared," if steps and not absolute else ""
        yield Problem(
            node,
            f"{quote(file, node, 50)} writes the difference of every pair, all dimensions of it, only for line "
            f"{op.call.lineno} to reduce it to one number per pair. {how} gives the distances without it.",
            0.45,
            subject=node,
            facts={"no_grad": file.context.grad_off(node), "steps": steps},
        )
