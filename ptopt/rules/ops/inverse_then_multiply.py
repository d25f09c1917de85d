from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Benchmark, Edit, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, torch_op

# Matrices of 2 to 4 rows: inverting them costs no more than solving.
_TINY = re.compile(
    r"intrin|extrin|cam|pose|view|proj|rot|affine|homog|w2c|c2w|transf|calib|inertia|moment|lattice|theta|tfm|\bmat\b|\b[th]\d\b|\bk\b|\br\b|_k\b|ego|lidar|world|frame",
    re.I,
)
_GEOMETRY = re.compile(r"geometr|camera|pose|augment|transform|homograph", re.I)


class InverseThenMultiply(Rule):
    """A matrix is inverted only to multiply by the inverse.

    ## What it does
    Finds `torch.inverse(a) @ b`, `torch.linalg.inv(a) @ b`, `a.inverse().matmul(b)` and the mirrored `b @ inv(a)`, also
    through a name that is read once.

    ## Why it is slow
    Inverting solves n systems of equations and then multiplies; `torch.linalg.solve(a, b)` solves only those that
    `b` asks for. It is also more accurate when `a` is badly conditioned.

    ## When this is wrong
    When the inverse is used again, or the matrices are 4 x 4 or smaller.

    ## Fix safety
    Unsafe: rounding differs, and a right-hand side that is a batch of vectors must get a last dimension.

    ## Sources
    - [torch.linalg.inv: prefer solve](https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html)
    """

    id = "PTO409"
    name = "inverse-then-multiply"
    family = "ops"
    severity = Severity.LOW
    triggers = ("inverse(", "inv(")
    since: ClassVar[Mapping[str, str]] = {"torch": "1.8"}
    partly: ClassVar[frozenset[str]] = frozenset({"left=False"})
    nodes = (ast.BinOp, ast.Call)
    calls = frozenset({"matmul", "mm", "bmm"})
    when_wrong = "the matrices are 4 x 4 or smaller"

    VALID = (
        """
        def unproject(K: torch.Tensor, points: torch.Tensor):
            return torch.inverse(K) @ points.transpose(2, 1)
        """,
        """
        w = torch.linalg.solve(gram, rhs)
        """,
        """
        precision = torch.linalg.inv(covariance)
        """,
        """
        rays = torch.inverse(intrinsics) @ pixels
        """,
        """
        y = torch.linalg.inv(a) * b
        """,
        """
        velocity = torch.matmul(momentum[:, None, :], torch.inverse(moment_of_inertia))
        """,
        """
        x = (x - mat[:, :, 2]) @ torch.inverse(mat[:, :, :2].transpose(1, 2))
        """,
        """
        model = torch.linalg.inv(t2) @ model @ t1
        """,
    )
    INVALID = (
        Invalid("""
            w = torch.linalg.inv(gram) @ rhs  # !
            # + w = torch.linalg.solve(gram, rhs)
        """),
        Invalid("""
            w = torch.matmul(torch.inverse(x.T @ x), x.T @ y)  # !
            # + w = torch.linalg.solve(x.T @ x, x.T @ y)
        """),
        Invalid("""
            w = gram.inverse() @ rhs  # !
            # + w = torch.linalg.solve(gram, rhs)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\na = torch.randn(256, 256) + 32 * torch.eye(256)\nb = torch.randn(256, 8)",
        before="result = torch.linalg.inv(a) @ b",
        after="result = torch.linalg.solve(a, b)",
        sizes="256 x 256 float32, 8 right-hand sides",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.BinOp):
            if not isinstance(node.op, ast.MatMult):
                return
            left, right = node.left, node.right
        else:
            product = torch_op(node, file, "matmul", "mm", "bmm")
            if product is None or len(product.rest) != 1:
                return
            left, right = product.operand, product.rest[0]
        inverse = _inverse(left, file)
        other, mirrored = right, False
        if inverse is None:
            inverse, other, mirrored = _inverse(right, file), left, True
        if inverse is None or not isinstance(node, ast.expr):
            return
        matrix, rhs = file.source(inverse.operand), file.source(other)
        if _TINY.search(matrix) or _GEOMETRY.search(file.path):
            return  # of 3 x 3 or 4 x 4, the inverse costs nothing, and one product applies it to all points
        solve = f"torch.linalg.solve({matrix}, {rhs}{', left=False' if mirrored else ''})"
        yield Problem(
            node,
            f"{quote(file, node)} computes a whole inverse for one product. `{' '.join(solve.split())}` is faster and more "
            "accurate.",
            0.4
            if inverse.call not in (left, right)
            else 0.5
            if _TINY.search(matrix) or _TINY.search(rhs) or _GEOMETRY.search(file.path)
            else 0.65,
            fix=Fix(
                Safety.UNSAFE,
                (Edit(*file.bounds(node), solve),),
                "the right-hand side is a matrix or one vector, not a batch of vectors",
            )
            if file.imports.local_names().get("torch") == "torch" and inverse.call in (left, right)
            else None,
        )


def _inverse(expr: ast.expr, file: SourceFile) -> Op | None:
    """The call that inverts, also through a name that is read only here."""
    if isinstance(expr, ast.Name):
        function = file.index.function_of(expr)
        found = file.bindings.of(function, expr.id)
        if len(found) != 1 or found[0].kind != "assign" or len(file.uses.loads(function, expr.id)) != 1:
            return None
        return torch_op(found[0].value, file, "inverse", "inv")
    return torch_op(expr, file, "inverse", "inv")
