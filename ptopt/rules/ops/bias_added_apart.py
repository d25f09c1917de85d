from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import value_of
from ptopt.source.frequency import Often

_BIAS = re.compile(r"(^|[._])(bias|b)(_?\w{0,3})?$|bias", re.I)


class BiasAddedApart(Rule):
    """A bias is added to a matrix product by an operation of its own.

    ## What it does
    Finds `x @ w + bias`, `torch.matmul(x, w) + self.bias`, `torch.mm(x, w)` with `out + self.bias` after it, and `F.linear(x, w) + bias`.

    ## Why it is slow
    The product is written to memory, read back and written once more for the sum. `addmm`, `baddbmm` and `F.linear` with a bias add it
    while the product is written.

    ## Fix safety
    There is no fix: the number of dimensions must be seen.

    ## Sources
    - [torch.addmm](https://docs.pytorch.org/docs/stable/generated/torch.addmm.html)
    """

    id = "PTO488"
    name = "bias-added-apart"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.BinOp, ast.AugAssign)
    triggers = ("bias", "matmul", "mm", "linear")
    when_wrong = "the code is compiled, or the bias is not a vector over the last dimension"

    VALID = (
        """
        class Layer(nn.Module):
            def forward(self, x):
                return torch.addmm(self.bias, x, self.weight)
        """,
        """
        class Block(nn.Module):
            def forward(self, x):
                return self.linear(x) + x
        """,
        """
        scores = q @ k.transpose(-2, -1) + mask
        """,
    )
    INVALID = (
        Invalid("""
            class Layer(nn.Module):
                def forward(self, x):
                    return torch.mm(x, self.weight) + self.bias  # !
        """),
        Invalid("""
            class GraphConvolution(nn.Module):
                def forward(self, x, adj):
                    out = torch.matmul(adj, torch.matmul(x, self.weight))
                    if self.bias is not None:
                        out = out + self.bias  # !
                    return out
        """),
        Invalid("""
            class Layer(nn.Module):
                def forward(self, x):
                    y = F.linear(x, self.weight)
                    y += self.bias  # !
                    return y
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        pair: tuple[ast.expr, ast.expr] | None = None
        if isinstance(node, ast.AugAssign):
            pair = (node.target, node.value) if isinstance(node.op, ast.Add) else None
        elif isinstance(node, ast.BinOp):
            pair = (node.left, node.right) if isinstance(node.op, ast.Add) else None
        if pair is None:
            return
        product, bias = pair
        if isinstance(node, ast.BinOp) and _is_bias(product, file):
            product, bias = bias, product
        if not _is_bias(bias, file):
            return
        made = _before(product, node, file)
        text = _fused(made, file)
        if not text or file.frequencies.of(node).often < Often.EVALUATION:
            return
        yield Problem(
            node,
            f"{quote(file, made, 45)} is written to memory, and read and written once more to add {quote(file, bias, 25)}. {text} adds it in the same kernel.",
            0.4,
            cause=file.index.statement_of(node),
            subject=made,
            facts={
                "through_name": made is not product,
                "in_place": isinstance(node, ast.AugAssign),
                "compiled": "torch.compile" in file.text,
            },
        )


def _before(product: ast.expr, node: ast.AST, file: SourceFile) -> ast.expr:
    """What the name was last given before this statement."""
    if not isinstance(product, ast.Name):
        return product
    line = file.index.statement_of(node).lineno
    found = [b for b in file.bindings.of(file.index.function_of(node), product.id) if b.line < line]
    last = found[-1] if found else None
    return last.value if last is not None and last.kind == "assign" and last.value is not None else product


def _is_bias(expr: ast.expr, file: SourceFile) -> bool:
    if isinstance(expr, ast.Attribute):
        return (
            bool(_BIAS.search(expr.attr))
            and "pos" not in expr.attr
            and "attn" not in expr.attr
            and "relative" not in expr.attr
        )
    return isinstance(expr, ast.Name) and bool(re.match(r"bias\d?$", expr.id))


def _fused(made: ast.expr, file: SourceFile) -> str:
    """The call that adds the bias, too; "" when it is no product."""
    if isinstance(made, ast.BinOp):
        return (
            "`F.linear` with the weight transposed, or, of matrices, `torch.addmm(bias, x, weight)`,"
            if isinstance(made.op, ast.MatMult)
            else ""
        )
    op = torch_op(value_of(made, file), file, "mm", "matmul", "bmm", "linear")
    if op is None or not op.rest or (isinstance(op.operand, ast.Name) and op.operand.id == "self"):
        return ""
    if op.name == "linear":
        return "" if op.argument(1, "bias") is not None else "`F.linear(x, weight, bias)`"
    return (
        "`torch.baddbmm(bias, x, weight)`"
        if op.name == "bmm"
        else "`torch.addmm(bias, x, weight)`, of matrices, or `F.linear` with the weight transposed,"
    )
