from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, torch_op
from ptopt.rules.shared.flow import added_dimension, outer_call, reads


class WeightedSumInFull(Rule):
    """A product with broadcast weights is written out in full only to be summed.

    ## What it does
    Finds `(w.unsqueeze(-1) * x).sum(dim)` and `torch.sum(w[..., None] * x, dim=1)`, also through a name that is read only there.

    ## Why it is slow
    The product is as large as `x`, is read once by the sum, and both factors and the product pass through memory again in
    backward. A contraction (`einsum`, `bmm`, `@`) computes the sum without it.

    ## Example
    ```python
    colour = torch.sum(weights.unsqueeze(-1) * rgb, dim=-2)
    ```

    ## Use instead
    ```python
    colour = torch.einsum("...s,...sc->...c", weights, rgb)
    ```

    ## Fix safety
    There is no fix: the equation depends on the number of dimensions.

    ## Sources
    - [torch.einsum](https://docs.pytorch.org/docs/stable/generated/torch.einsum.html)
    """

    id = "PTO827"
    name = "weighted-sum-in-full"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.BinOp,)
    triggers = ("unsqueeze(", "None")
    requires = ("sum(",)
    when_wrong = "the tensors are small, or the order of the additions matters"

    VALID = (
        """
        colour = torch.einsum("bs,bsc->bc", weights, rgb)
        """,
        """
        masked = mask.unsqueeze(-1) * x
        total, largest = masked.sum(1), masked.amax(1)
        """,
        """
        centred = (x * scale).sum(dim=1)
        """,
    )
    INVALID = (
        Invalid("""
            colour = torch.sum(weights.unsqueeze(-1) * rgb, dim=-2)  # !
        """),
        Invalid("""
            def pool(self, hidden, attention):
                weighted = hidden * attention[:, :, None]  # !
                return weighted.sum(dim=1)
        """),
        Invalid("""
            step = (inverse * gradient.unsqueeze(-2)).sum(-1)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            return
        added = [added_dimension(side, file) for side in (node.left, node.right)]
        if added[0] is None and added[1] is None or "mask" in file.source(node).lower():
            return  # a mask is applied for other reasons too: what it hides may be infinite
        uses = reads(node, file)
        if len(uses) != 1:
            return
        op = torch_op(outer_call(uses[0], file), file, "sum") or torch_op(
            file.index.parent(uses[0]), file, "sum"
        )
        if op is None or op.operand is not uses[0]:
            return
        dim = int_literal(op.argument(0, "dim"))
        if dim is None or any(file.values.of(side).kind == "array" for side in (node.left, node.right)):
            return
        place = next(a for a in added if a is not None)
        if place == dim:
            return  # the weights do not vary along the sum
        left, right = (quote(file, side, 25) for side in (node.left, node.right))
        yield Problem(
            node,
            f"{left[:-1]} * {right[1:]} is written out in full, and line {op.call.lineno} only sums it over dimension {dim}. "
            "`torch.einsum` (or `@`, `bmm`) of the two gives the sum without the product in memory.",
            0.4,
            cause=file.index.statement_of(node),
            subject=node,
            facts={"no_grad": file.context.grad_off(node), "both": None not in added},
        )
