from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.ops._calls import int_literal, torch_op
from ptopt.rules.shared.flow import assigned
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes


class ProductThenSum(Rule):
    """A product with a weight vector is written to memory and then summed.

    ## What it does
    Finds `(x * self.w).sum(dim=-1)` where `self.w` is a parameter that is a single vector: of shape `(n,)` or `(1, n)`,
    and weighted sums `(w.unsqueeze(-1) * x).sum(1)`.

    ## Why it is slow
    The product has the size of `x`; it is written, read back for the sum, and kept for the backward pass. The
    matrix-vector product `x @ w` reads `x` once and keeps nothing of that size.

    ## Fix safety
    None: under autocast the product then runs in half precision, where the sum ran in float32.

    ## Sources
    - [torch.matmul](https://docs.pytorch.org/docs/stable/generated/torch.matmul.html)
    """

    id = "PTO416"
    name = "product-then-sum"
    family = "ops"
    severity = Severity.LOW
    triggers = ("sum(",)
    requires = ("Parameter(",)
    nodes = (ast.Call,)
    calls = frozenset({"sum"})
    when_wrong = "`x` has a few rows only"

    VALID = (
        """
        class Score(nn.Module):
            def __init__(self, heads, n):
                super().__init__()
                self.att = nn.Parameter(torch.empty(1, heads, n))

            def forward(self, x):
                return (x * self.att).sum(dim=-1)
        """,
        """
        class Score(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.att = nn.Parameter(torch.empty(1, n))

            def forward(self, x):
                return (x * self.att).sum(dim=0)
        """,
        """
        def dot(a, b):
            return (a * b).sum(dim=-1)
        """,
    )
    INVALID = (
        Invalid("""
            class Score(nn.Module):
                def __init__(self, n):
                    super().__init__()
                    self.att = nn.Parameter(torch.empty(1, n))

                def forward(self, x):
                    return (x * self.att).sum(dim=-1)  # !
                    # ~ return x @ self.att.view(-1)
        """),
        Invalid("""
            class Score(nn.Module):
                def __init__(self, n):
                    super().__init__()
                    self.w = nn.Parameter(torch.randn(n))

                def forward(self, x):
                    return torch.sum(self.w * x, -1)  # !
        """),
        Invalid("""
            class Score(nn.Module):
                def __init__(self, n):
                    super().__init__()
                    self.att_l = nn.Parameter(torch.Tensor(1, n))

                def message(self, x_j, x_i):
                    alpha = (x_j * self.att_l).sum(-1)  # !
                    return F.leaky_relu(alpha)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(50000, 64)\nw = torch.randn(1, 64)",
        before="result = (x * w).sum(dim=-1)",
        after="result = x @ w.view(-1)",
        sizes="50,000 x 64 float32, forward",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        total = torch_op(node, file, "sum")
        if (
            total is None
            or not isinstance(total.operand, ast.BinOp)
            or not isinstance(total.operand.op, ast.Mult)
        ):
            return
        product = total.operand
        if total.argument(1, "keepdim") is None:
            weighted = _weighted(product, int_literal(total.argument(0, "dim", "axis")), file)
            if weighted is not None:
                yield _weighted_sum(node, weighted, product, file)
                return
        if int_literal(total.argument(0, "dim")) != -1 or total.argument(1, "keepdim") is not None:
            return
        for weight, other in ((product.right, product.left), (product.left, product.right)):
            shape = _vector(weight, file)
            if shape is not None and not isinstance(other, ast.Constant):
                break
        else:
            return
        name = file.source(weight)
        yield Problem(
            node,
            f"`{name}` is one vector (line {shape.lineno}), so this is a matrix-vector product, but it writes the "
            f"whole product to memory and keeps it for the backward pass. {quote(file, other, 40)[:-1]} @ {name}.view(-1)` "
            "does not.",
            0.65,
            (Evidence(shape.lineno, "the shape of the parameter"),),
        )


def _weighted_sum(node: ast.AST, weight: ast.expr, product: ast.BinOp, file: SourceFile) -> Problem:
    other = product.left if product.right is weight else product.right
    return Problem(
        node,
        f"{quote(file, node)} is a weighted sum: it writes the whole product before it adds it up, and keeps it for the "
        f"backward pass. A matrix product does not: `torch.matmul` of the weights and `{file.source(other)}`.",
        0.35,
        subject=other,
        facts={"weighted": 1},
    )


def _weighted(product: ast.BinOp, dim: int | None, file: SourceFile) -> ast.expr | None:
    """The factor with a last dimension of one, `w.unsqueeze(-1)` or `w[..., None]`, where another dimension is summed."""
    if dim not in (1, -2):
        return None
    for factor, other in ((product.left, product.right), (product.right, product.left)):
        if (
            _new_last(factor, file, 2)
            and not _new_last(other, file, 2)
            and isinstance(other, (ast.Name, ast.Attribute))
        ):
            return factor if file.values.of(other).kind in ("tensor", "") else None
    return None


def _new_last(expr: ast.expr, file: SourceFile, depth: int) -> bool:
    """Does it end in a dimension that was just added?"""
    op = torch_op(expr, file, "unsqueeze")
    if op is not None:
        return int_literal(op.argument(0, "dim")) in (-1, 2)
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Tuple):
        last = expr.slice.elts[-1]
        return isinstance(last, ast.Constant) and last.value is None and len(expr.slice.elts) in (2, 3)
    if isinstance(expr, ast.Name) and depth:
        value = assigned(expr, file)
        return value is not None and _new_last(value, file, depth - 1)
    return False


def _vector(weight: ast.expr, file: SourceFile) -> ast.expr | None:
    """The creation of the parameter `self.name`, when its shape is `(n,)` or `(1, n)`."""
    if (
        not isinstance(weight, ast.Attribute)
        or not isinstance(weight.value, ast.Name)
        or weight.value.id != "self"
    ):
        return None
    cls = file.index.class_of(weight)
    made = file.bindings.attribute(cls, weight.attr) if cls is not None else None
    if not isinstance(made, ast.Call) or not made.args or cls is None:
        return None
    if not file.imports.qualified(made.func).endswith("Parameter") or _assigned_again(cls, weight.attr):
        return None
    factory = made.args[0]
    if not isinstance(factory, ast.Call):
        return None
    if (
        file.imports.qualified(factory.func).rpartition(".")[0] != "torch"
        or method_call(factory, "tensor") is not None
    ):
        return None
    sizes: list[ast.expr] = factory.args
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    if len(sizes) == 2 and int_literal(sizes[0]) == 1 and int_literal(sizes[1]) is None:
        return factory
    return factory if len(sizes) == 1 and isinstance(sizes[0], (ast.Name, ast.Attribute)) else None


def _assigned_again(cls: ast.ClassDef, name: str) -> bool:
    """Is there a second shape that the attribute may have?"""
    return _attribute_stores(cls)[name] != 1


@remembered
def _attribute_stores(cls: ast.ClassDef) -> Counter[str]:
    """How often methods of the class store each attribute."""
    nodes = (n for method in cls.body for n in own_nodes(method))
    return Counter(n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
