from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.ops._calls import Op, torch_op


class LogsumexpByHand(Rule):
    """`log(sum(exp(x)))` is spelled out.

    ## What it does
    Finds `torch.log(torch.sum(torch.exp(x), dim=d))` and `x.exp().sum(d).log()`, with the dimension given.

    ## Why it is slow
    It is not slower: both take about the same time. But the exponentials, a tensor of the size of `x`, are kept for the
    backward pass, which `torch.logsumexp` does not do; and they overflow, in float16 above 11, in float32 above
    88, where it subtracts the maximum first. Off by default, because the gain is memory and not time.

    ## Fix safety
    Unsafe: results differ by rounding, and are finite where the exponentials overflowed.

    ## Sources
    - [torch.logsumexp](https://docs.pytorch.org/docs/stable/generated/torch.logsumexp.html)
    """

    id = "PTO408"
    name = "logsumexp-by-hand"
    family = "ops"
    severity = Severity.LOW
    default = False
    triggers = ("exp(",)
    requires = ("log(",)
    nodes = (ast.Call,)
    calls = frozenset({"log"})
    when_wrong = "the maximum was already subtracted"

    VALID = (
        """
        z = torch.logsumexp(scores, dim=1)
        """,
        """
        z = torch.log(torch.sum(torch.exp(scores)))
        """,
        """
        z = torch.log((torch.exp(scores) * mask).sum(dim=1))
        """,
        """
        peak = x.max(dim=1, keepdim=True).values
        z = torch.log(torch.exp(x - peak).sum(dim=1))
        """,
    )
    INVALID = (
        Invalid("""
            z = torch.log(torch.sum(torch.exp(scores), dim=1))  # !
            # + z = torch.logsumexp(scores, dim=1)
        """),
        Invalid("""
            z = scores.exp().sum(-1, keepdim=True).log()  # !
            # + z = torch.logsumexp(scores, dim=-1, keepdim=True)
        """),
        Invalid("""
            loss = -pos + torch.log(torch.exp(sim / t).sum(dim=1))  # !
            # + loss = -pos + torch.logsumexp(sim / t, dim=1)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        log = torch_op(node, file, "log")
        if log is None or log.rest or log.call.keywords:
            return
        total = torch_op(log.operand, file, "sum")
        if total is None:
            return
        dim = total.argument(0, "dim", "axis")
        exp = torch_op(total.operand, file, "exp")
        if (
            dim is None
            or exp is None
            or exp.rest
            or exp.call.keywords
            or keyword_of(total.call, "dtype") is not None
        ):
            return
        if _subtracts_maximum(exp.operand, file):
            return
        fix = _fix(log, total, exp, dim, file)
        yield Problem(
            node,
            f"{quote(file, node)} keeps the exponentials for the backward pass and overflows for large "
            "values. `torch.logsumexp` subtracts the maximum first and does not keep them.",
            0.8,
            fix=fix,
        )


def _subtracts_maximum(expr: ast.expr, file: SourceFile) -> bool:
    """`x - peak` inside of the exponential: somebody takes care of the range already."""
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Sub):
        return True
    if isinstance(expr, ast.Name):
        binding = file.bindings.last_before(expr)
        value = binding.value if binding is not None else None
        return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)
    return False


def _fix(log: Op, total: Op, exp: Op, dim: ast.expr, file: SourceFile) -> Fix | None:
    if file.imports.local_names().get("torch") != "torch":
        return None
    keep = total.argument(1, "keepdim", "keepdims")
    tail = f", keepdim={file.source(keep)}" if keep is not None else ""
    text = f"torch.logsumexp({file.source(exp.operand)}, dim={file.source(dim)}{tail})"
    assumption = "nobody relies on the overflow of the exponentials"
    return Fix(Safety.UNSAFE, (Edit(*file.bounds(log.call), text),), assumption)
