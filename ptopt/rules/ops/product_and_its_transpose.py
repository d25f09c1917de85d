from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, names_in, torch_op
from ptopt.rules.ops._pure import changes
from ptopt.source.index import FUNCTIONS, FunctionNode


class ProductAndItsTranspose(Rule):
    """A matrix product is computed a second time to get its transpose.

    ## What it does
    Finds `a @ b.t()` and `b @ a.t()` in one function that changes neither operand in between.

    ## Why it is slow
    The second product is the transpose of the first. A transpose is a view; the product costs as much as the first one,
    forward and backward.

    ## When this is wrong
    When the function changes an operand in between in a way that is not visible.

    ## Fix safety
    No fix: the name of the first product may be reused below.

    ## Sources
    - [CLIP: the same change](https://github.com/openai/CLIP/commit/3b473b0e682c091a9e53623eebc1ca1657385717)
    """

    id = "PTO471"
    name = "product-and-its-transpose"
    family = "ops"
    most_stated = 0.6
    triggers = ("matmul", "mm", " @ ")
    requires = ("t()", "T", "transpose", "mT")
    nodes = FUNCTIONS
    when_wrong = "an operand changes in between in a way that the function does not show"

    VALID = (
        """
        def logits(image, text):
            a = image @ text.t()
            text = F.normalize(text)
            return a, text @ image.t()
        """,
        """
        def gram(x, y):
            return x @ x.t(), y @ y.t()
        """,
        """
        def gathered(image, text, all_image, all_text):
            return image @ all_text.t(), text @ all_image.t()
        """,
    )
    INVALID = (
        Invalid("""
            def logits(image, text, scale):
                per_image = scale * image @ text.t()
                per_text = scale * text @ image.t()  # !
                # ~ per_text = per_image.t()
                return per_image, per_text
        """),
        Invalid("""
            def loss(query, key, labels):
                forward = torch.matmul(query, key.transpose(0, 1))
                backward = torch.matmul(key, query.transpose(0, 1))  # !
                return F.cross_entropy(forward, labels) + F.cross_entropy(backward, labels)
        """),
        Invalid("""
            def similarity(a, b):
                return a @ b.T / 0.07, b @ a.T / 0.07  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, FUNCTIONS):
            return
        products = file.once(_products).get(node, {})
        for (scale, left, right), first in products.items():
            second = products.get((scale, right, left))
            if (
                second is None
                or left == right
                or (second.lineno, second.col_offset) <= (first.lineno, first.col_offset)
            ):
                continue
            keys = names_in(first)
            if changes(node, file).between(
                keys, (first.lineno, first.col_offset), (second.lineno, second.col_offset)
            ):
                continue
            yield Problem(
                second,
                f"{quote(file, second)} is the transpose of the product {quote(file, first)} at line {first.lineno}. "
                "Take the transpose of that result (`.t()`, a view) rather than multiply again.",
                0.6,
                (Evidence(first.lineno, "the first product"),),
                subject=second,
            )


def _products(file: SourceFile) -> dict[FunctionNode, dict[tuple[str, str, str], ast.expr]]:
    """Function -> (scale, a, b) -> the product `scale * a @ b.t()`."""
    table: dict[FunctionNode, dict[tuple[str, str, str], ast.expr]] = {}
    calls = [call for name in ("matmul", "mm") for call in file.calls_named(name)]
    for node in (*file.index.of_type(ast.BinOp), *calls):
        if isinstance(node, ast.BinOp):
            if not isinstance(node.op, ast.MatMult):
                continue
            left, right = node.left, node.right
        else:
            op = torch_op(node, file, "matmul", "mm")
            if op is None or not op.rest:
                continue
            left, right = op.operand, op.rest[0]
        function = file.index.function_of(node)
        other = _transposed(right, file)
        if function is not None and other is not None:
            scale, factor = ("", left)
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult):
                scale, factor = ast.dump(left.left), left.right
            key = (scale, ast.dump(factor), ast.dump(other))
            table.setdefault(function, {}).setdefault(key, node)
    return table


def _transposed(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    """`x` of `x.t()`, `x.T`, `x.mT` and of a transpose of the last two dimensions."""
    if isinstance(expr, ast.Attribute) and expr.attr in ("T", "mT"):
        return expr.value
    op = torch_op(expr, file, "t", "transpose")
    if op is None:
        return None
    if op.name == "t":
        return None if op.rest else op.operand
    dims = {int_literal(d) for d in op.rest}
    return op.operand if dims in ({0, 1}, {-1, -2}) else None
