from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import same_code, torch_op
from ptopt.source.index import walk

_MASK = re.compile(r"mask|valid|(^|_)(is|pad|keep)_", re.I)
_VIEWS = ("unsqueeze", "view", "expand", "expand_as")
_CASTS = ("float", "long", "int", "to", "type", "type_as", "half")


class MaskedArithmetic(Rule):
    """Two values are selected by a mask with products and a sum.

    ## What it does
    Finds `a * m + b * (1 - m)`, also through names that the parts were just given, where `m` is a mask of zeros and ones.

    ## Why it is slow
    It takes four kernels and three temporary tensors (five with the cast of the mask), and autograd keeps the operands of
    both products. `torch.where` is one kernel, and a number is filled in with `masked_fill`.

    ## Fix safety
    No fix: the mask must be boolean, and a NaN in the part that is not taken no longer spreads.

    ## Sources
    - [torch.where](https://docs.pytorch.org/docs/stable/generated/torch.where.html)
    """

    id = "PTO480"
    name = "masked-arithmetic"
    family = "ops"
    most_stated = 0.5
    requires = ("1", "1.0")
    nodes = (ast.BinOp,)
    when_wrong = "the mask blends with values between 0 and 1"

    VALID = (
        """
        def crop(image, mask):
            return image.astype(np.float32) * mask + 255 * (1.0 - mask)
        """,
        """
        def blend(a, b, alpha):
            return a * alpha + b * (1 - alpha)
        """,
        """
        def scores(x, mask):
            return x + (1 - mask) * -1e9
        """,
    )
    INVALID = (
        Invalid("""
            def choose(x, a, b):
                mask = (x > 0).float()
                # ~
                return a * mask + b * (1 - mask)  # !
                # ~ return torch.where(x > 0, a, b)
        """),
        Invalid("""
            def pad(x, key_mask):
                return x * key_mask + -1e9 * (1.0 - key_mask)  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [
            node
            for node in file.index.of_type(ast.BinOp)
            if node.op.__class__ is ast.Add
            and node.left.__class__ is ast.BinOp
            and node.right.__class__ is ast.BinOp
        ]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
            return
        sides = [_product(node.left), _product(node.right)]
        if not sides[0] or not sides[1]:
            return
        for place, inverted in [(at, factor) for at, side in enumerate(sides) for factor in side]:
            mask = _one_minus(inverted)
            if mask is None or not any(same_code(mask, factor) for factor in sides[1 - place]):
                continue
            binary, line = _is_binary(mask, file)
            taken = [f for f in sides[1 - place] if not same_code(f, mask)]
            other = [f for f in sides[place] if f is not inverted]
            name = file.source(mask)
            filled = other and isinstance(other[0], (ast.Constant, ast.UnaryOp)) and taken
            named = isinstance(mask, ast.Name) and _MASK.search(mask.id)
            if not binary and not (named and filled):
                continue  # a blend
            factors = (mask, *taken, *other)
            if any("astype" in file.source(f) or file.values.of(f).kind == "array" for f in factors):
                return  # NumPy has neither kernels nor `masked_fill`
            instead = (
                f"{file.source(taken[0])}.masked_fill(~{name}.bool(), {file.source(other[0])})"
                if filled
                else f"torch.where({name}.bool(), {_text(taken, file)}, {_text(other, file)})"
            )
            yield Problem(
                node,
                f"{quote(file, node)} selects by `{name}` with four kernels and three temporary tensors. Where the mask "
                f"holds only zeros and ones, `{instead}` is one kernel.",
                0.5 if binary else 0.3,
                (Evidence(line, "the mask is zeros and ones"),) if line and line != node.lineno else (),
                subject=node,
                facts={"binary": binary, "filled": bool(filled)},
            )
            return


def _product(expr: ast.expr) -> list[ast.expr]:
    """The factors of a product."""
    if not isinstance(expr, ast.BinOp) or not isinstance(expr.op, ast.Mult):
        return []
    return [f for side in (expr.left, expr.right) for f in (_product(side) or [side])]


def _one_minus(expr: ast.expr) -> ast.expr | None:
    """`m` of `1 - m` and `~m`."""
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.Invert):
        return expr.operand
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Sub) and isinstance(expr.left, ast.Constant):
        return expr.right if expr.left.value == 1 else None
    return None


def _is_binary(mask: ast.expr, file: SourceFile) -> tuple[bool, int]:
    """Is it a comparison that was cast to numbers? And the line that shows it."""
    line = getattr(mask, "lineno", 0)
    if isinstance(mask, ast.Name):
        binding = file.bindings.last_before(mask)
        if binding is None or binding.kind != "assign" or binding.value is None:
            return False, 0
        mask, line = binding.value, binding.line
    while (op := torch_op(mask, file, *_CASTS, *_VIEWS)) is not None and op.is_method:
        mask = op.operand
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.Mult):  # (x > 0) * 1.0
        mask = mask.left if isinstance(mask.left, ast.Compare) else mask.right
    compared = isinstance(mask, ast.Compare) and file.values.of(mask).kind in ("tensor", "")
    return compared or torch_op(
        mask, file, "eq", "ne", "gt", "ge", "lt", "le", "isnan", "bernoulli", "bernoulli_"
    ) is not None, line


def _text(factors: list[ast.expr], file: SourceFile) -> str:
    """The other factors, multiplied."""
    words = [
        f"({file.source(f)})"
        if len(factors) > 1 and any(isinstance(n, ast.BinOp) for n in walk(f))
        else file.source(f)
        for f in factors
    ]
    return " * ".join(words) or "1"
