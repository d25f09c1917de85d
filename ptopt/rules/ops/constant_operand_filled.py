from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import value_of
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often

_FILLS = {
    "zeros_like": "0",
    "ones_like": "1",
    "zeros": "0",
    "ones": "1",
    "new_zeros": "0",
    "new_ones": "1",
    "full_like": "",
    "full": "",
}


class ConstantOperandFilled(Rule):
    """A whole tensor is filled with one number, only to be an operand.

    ## What it does
    Finds `torch.where(c, x, torch.zeros_like(x))`, `torch.maximum(x, torch.zeros_like(x))`, `torch.ones(n) * value` and
    `torch.zeros(n) + value`.

    ## Why it is slow
    The constant is allocated, written and read again: two passes over memory more, for a number that the kernel takes as a
    scalar. For attention masks and activations this is the size of the largest tensors.

    ## When this is wrong
    When the tensors are small, or the version of torch is older than 1.12.

    ## Fix safety
    No fix is offered: a Python number may change the data type of an integer result.

    ## Sources
    - [torch.where](https://docs.pytorch.org/docs/stable/generated/torch.where.html)
    """

    id = "PTO464"
    name = "constant-operand-filled"
    family = "ops"
    most_stated = 0.35
    nodes = (ast.Call, ast.BinOp)
    requires = ("zeros", "ones", "full")
    when_wrong = "the tensors are small"

    VALID = (
        """
        def forward(self, x, mask):
            return torch.where(mask, x, 0)
        """,
        """
        def forward(self, x):
            total = torch.zeros_like(x)
            for _ in range(3):
                total += x
            return torch.where(x > 0, x, total)
        """,
        """
        def forward(self, x):
            return x * 2.0
        """,
    )
    INVALID = (
        Invalid("""
            class Masked(nn.Module):
                def forward(self, x, mask):
                    return torch.where(mask, x, torch.zeros_like(x))  # !
        """),
        Invalid("""
            class Hinge(nn.Module):
                def forward(self, x, margin):
                    return torch.max(x - margin, torch.zeros_like(x))  # !
        """),
        Invalid("""
            def forward(self, x, t):
                step = torch.ones(x.size(0), x.size(1), device=x.device) * t  # !
                return self.embed(x, step)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        found = _scaled(node, file) if isinstance(node, ast.BinOp) else _operand(node, file)
        if found is None or not isinstance(node, ast.expr):
            return
        made, text = found
        if file.frequencies.of(node).often in (Often.ONCE, Often.RARELY):
            return
        yield Problem(
            node,
            f"{quote(file, made, 45)} writes a whole tensor of one number, which {quote(file, node, 45)} reads again. {text}",
            0.35,
            subject=made,
            facts={
                "where": isinstance(node, ast.Call) and called_name(node) == "where",
                "scaled": isinstance(node, ast.BinOp),
                "named": made.lineno != node.lineno,
            },
        )


def _constant(expr: ast.expr, file: SourceFile) -> tuple[ast.Call, str] | None:
    """The call that fills a tensor with one number, and that number's text."""
    value = value_of(expr, file)
    if isinstance(expr, ast.Name) and (
        len(file.bindings.of(file.index.function_of(expr), expr.id)) != 1
        or len(file.uses.loads(file.index.function_of(expr), expr.id)) != 1
    ):
        return None
    if not isinstance(value, ast.Call) or called_name(value) not in _FILLS:
        return None
    name = called_name(value)
    qualified = file.imports.qualified(value.func)
    if not (qualified.startswith("torch.") or name.startswith("new_")):
        return None
    if any(isinstance(a, (ast.Tuple, ast.List)) and not a.elts for a in value.args):
        return None  # a single number
    if name in ("full", "full_like"):
        return (value, file.source(value.args[1])) if len(value.args) > 1 else None
    return value, _FILLS[name]


def _operand(node: ast.AST, file: SourceFile) -> tuple[ast.Call, str] | None:
    op = torch_op(node, file, "where", "max", "min", "maximum", "minimum")
    if op is None or op.is_method and op.name != "where":
        return None
    operands = [op.operand, *op.rest]
    if op.name == "where":
        if op.is_method or len(operands) != 3:
            return None
        sides = [
            (_constant(e, file), e, other)
            for e, other in ((operands[1], operands[2]), (operands[2], operands[1]))
        ]
        found = next(
            ((c, other) for c, _, other in sides if c is not None and _constant(other, file) is None), None
        )
        if found is None:
            both = all(c is not None for c, _, _ in sides)
            first = sides[0][0]
            if not both or first is None:
                return None
            return first[0], "Give `torch.where` the two numbers."
        (made, text), _ = found
        return made, f"Give `torch.where` the number itself: `{text}`."
    if len(operands) != 2:
        return None
    constants = [c for e in operands if (c := _constant(e, file)) is not None]
    if len(constants) != 1:
        return None
    made, text = constants[0]
    bound = "min" if op.name in ("max", "maximum") else "max"
    return made, f"`x.clamp({bound}={text})` takes the number itself."


def _scaled(node: ast.BinOp, file: SourceFile) -> tuple[ast.Call, str] | None:
    """`torch.ones(n) * c`, `torch.zeros(n) + c`, where `c` is a number."""
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(side, ast.Call) or _constant(side, file) is None:
            continue
        name = called_name(side)
        times = isinstance(node.op, ast.Mult) and "ones" in name
        plus = isinstance(node.op, ast.Add) and "zeros" in name
        if not times and not plus:
            continue
        kind = file.values.of(other).kind
        plain = (
            isinstance(other, (ast.Constant, ast.UnaryOp))
            or kind == "scalar"
            or isinstance(other, (ast.Name, ast.Attribute))
            and kind == ""
        )
        if not plain:
            return None
        like = "full_like" if name.endswith("_like") else "full"
        return (
            side,
            f"`torch.{like}` writes the final number at once, if {quote(file, other, 20)} is a number.",
        )
    return None
