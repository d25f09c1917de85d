from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.source.frequency import Often

_MATRICES = ("diag", "diag_embed", "ones", "ones_like", "eye")


class DenseMatrixForScaling(Rule):
    """A matrix product does what a multiplication by a vector or a sum does.

    ## What it does
    Finds products with `torch.diag(v)`, `diag_embed(v)` (they scale rows or columns), with `torch.ones(...)` (they sum) and
    with `torch.eye(...)` (they do nothing).

    ## Why it is slow
    The matrix holds n² entries of which n matter, and the product takes n times the work of a broadcast multiplication.

    ## When this is wrong
    When the matrix is tiny, or the product is wanted in one kernel with others.

    ## Fix safety
    No fix: rounding differs where an order of summation changes.

    ## Sources
    - [Broadcasting semantics](https://docs.pytorch.org/docs/stable/notes/broadcasting.html)
    """

    id = "PTO478"
    name = "dense-matrix-for-scaling"
    family = "ops"
    most_stated = 0.45
    triggers = ("diag", "ones", "eye")
    nodes = (ast.BinOp, ast.Call)
    calls = frozenset({"matmul", "mm", "bmm"})
    when_wrong = "the matrices are tiny"

    VALID = (
        """
        def gram(x):
            return torch.diag(x @ x.t())
        """,
        """
        def scale(v, x):
            return v[:, None] * x
        """,
        """
        def outer(a, n):
            mask = torch.ones(n, 1)
            mask[3] = 0
            return a @ mask
        """,
    )
    INVALID = (
        Invalid("""
            def scale(v, x):
                return torch.diag(v) @ x  # !
                # ~ return v[:, None] * x
        """),
        Invalid("""
            def degrees(adjacency, n):
                return torch.matmul(adjacency, torch.ones(n, 1))  # !
                # ~ return adjacency.sum(dim=1, keepdim=True)
        """),
        Invalid("""
            def precondition(u, s, v):
                s_matrix = torch.diag_embed(s)
                return torch.bmm(torch.bmm(u, s_matrix), v)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            sides = (node.left, node.right)
        else:
            op = torch_op(node, file, "matmul", "mm", "bmm")
            if (
                op is None
                or len(op.rest) != 1
                or isinstance(op.operand, ast.Name)
                and op.operand.id == "self"
            ):
                return
            sides = (op.operand, op.rest[0])
        if Often.UNKNOWN < file.frequencies.of(node).often <= Often.ONCE:
            return
        for place, side in enumerate(sides):
            made = _matrix(side, file)
            if made is None:
                continue
            other = file.source(sides[1 - place])
            yield Problem(
                node,
                f"{quote(file, node)} multiplies by a full matrix made by `{made.name}`, most of which is zeros or ones. "
                + _instead(made, place, other, file),
                0.45,
                beside(node, made.call, "makes the matrix"),
                subject=sides[1 - place],
                facts={"diagonal": made.name.startswith("diag"), "ones": made.name.startswith("ones")},
            )
            return


def _matrix(expr: ast.expr, file: SourceFile) -> Op | None:
    """The call that makes the matrix, through moves, casts and one local name."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in (
        "to", "cuda", "type_as", "float", "double", "half", "t", "expand",
    ):  # fmt: skip
        expr = expr.func.value
    if isinstance(expr, ast.Name):
        function = file.index.function_of(expr)
        found = file.bindings.of(function, expr.id)
        if len(found) != 1 or found[0].kind != "assign" or found[0].value is None:
            return None
        loads = file.uses.loads(function, expr.id)
        if any(isinstance(file.index.parent(n), (ast.Subscript, ast.Attribute)) for n in loads):
            return None  # changed, or used in another way
        expr = found[0].value
    if isinstance(expr, ast.Call) and file.imports.qualified(expr.func) in ("torch.ones", "torch.eye"):
        return Op(expr.func.attr if isinstance(expr.func, ast.Attribute) else "ones", expr, expr, (), False)
    made = torch_op(expr, file, *_MATRICES)
    if made is None or (made.is_method and made.name in ("ones", "ones_like", "eye")):
        return None
    return None if made.name == "diag" and _takes_diagonal(made, file) else made


def _takes_diagonal(made: Op, file: SourceFile) -> bool:
    """`torch.diag` of a matrix gives a vector."""
    return (
        isinstance(made.operand, ast.BinOp)
        and isinstance(made.operand.op, ast.MatMult)
        or torch_op(made.operand, file, "matmul", "mm") is not None
    )


def _instead(made: Op, place: int, other: str, file: SourceFile) -> str:
    if made.name.startswith("diag"):
        vector = file.source(made.operand)
        scaled = f"{vector}.unsqueeze(-1) * {other}" if place == 0 else f"{other} * {vector}.unsqueeze(-2)"
        return f"It scales {'rows' if place == 0 else 'columns'}: write `{scaled}`."
    if made.name == "eye":
        return f"A product with the identity gives `{other}` back."
    return f"It sums: write `{other}.sum(dim={-2 if place == 0 else -1}, keepdim=True)`."
