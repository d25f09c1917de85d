from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, names_in, torch_op


class LogOfSoftmax(Rule):
    """A softmax is computed only to take its logarithm.

    ## What it does
    Finds `torch.log(F.softmax(x, dim=d))` in its spellings: as a method, with `torch.softmax`, with a small
    constant added before the logarithm, and through a name that the softmax was just given.

    ## Why it is slow
    Two kernels read and write the whole tensor, and both outputs are kept for the backward pass. `log_softmax` is
    one kernel that keeps one output. It also stays finite where a probability underflows to zero.

    `F.cross_entropy(logits, target)` is `F.nll_loss` of it in one call.

    ## When this is wrong
    When the softmax is computed in a wider type than the logarithm on purpose.

    ## Fix safety
    Safe for the direct nesting: equal up to rounding, and finite where the logarithm of an underflow was `-inf`.
    Unsafe where a constant was added before the logarithm: that clamped small probabilities, and goes away.

    ## Sources
    - [torch.nn.functional.log_softmax](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html)
    """

    id = "PTO407"
    name = "log-of-softmax"
    family = "ops"
    triggers = ("softmax",)
    requires = ("log(",)
    nodes = (ast.Call,)
    calls = frozenset({"log"})
    when_wrong = "the constant before the logarithm is part of the method"

    VALID = (
        """
        log_probs = F.log_softmax(logits, dim=-1)
        """,
        """
        loss = F.cross_entropy(logits, target)
        """,
        """
        entropy = torch.log(torch.sum(F.softmax(logits, dim=1), dim=0))
        """,
        """
        probs = F.softmax(logits, dim=-1)
        probs = probs / probs.sum()
        score = torch.log(probs)
        """,
        """
        attn = torch.log(gate * F.softmax(scores, dim=-1))
        """,
    )
    INVALID = (
        Invalid("""
            loss = F.nll_loss(torch.log(F.softmax(logits, dim=1)), target)  # !
            # + loss = F.nll_loss(F.log_softmax(logits, dim=1), target)
        """),
        Invalid("""
            log_probs = scores.softmax(-1).log()  # !
            # + log_probs = scores.log_softmax(-1)
        """),
        Invalid("""
            log_probs = torch.log(torch.softmax(logits, dim=-1) + 1e-8)  # !
            # + log_probs = torch.log_softmax(logits, dim=-1)
        """),
        Invalid("""
            def entropy(logits):
                probs = F.softmax(logits, dim=-1)
                return -(probs * torch.log(probs)).sum(-1)  # !
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nimport torch.nn.functional as F\nx = torch.randn(256, 4096)",
        before="result = torch.log(F.softmax(x, dim=1))",
        after="result = F.log_softmax(x, dim=1)",
        sizes="256 x 4096 float32, forward",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        log = torch_op(node, file, "log")
        if log is None or log.rest or any(k.arg != "input" for k in log.call.keywords):
            return
        inner, added = _without_epsilon(log.operand)
        named = inner if isinstance(inner, ast.Name) else None
        softmax = _softmax(named, file) if named is not None else torch_op(inner, file, "softmax")
        if softmax is None:
            return
        if named is not None:
            yield Problem(
                node,
                f"`{named.id}` is a softmax (line {softmax.call.lineno}), and {quote(file, node)} takes its logarithm. "
                f"`log_softmax` gives the logarithm in one kernel that stays finite where a probability underflows; "
                f"where `{named.id}` itself is needed too, take `.exp()` of it.",
                0.6 if not added else 0.5,
            )
            return
        yield Problem(
            node,
            f"{quote(file, node)} runs two kernels and keeps both results for the backward pass. "
            f"`log_softmax` is one, and needs no protection against `log(0)`"
            f"{': the added constant can go' if added else ''}.",
            0.75 if added else 0.9,
            fix=_fix(log, softmax, added, file),
        )


def _without_epsilon(expr: ast.expr) -> tuple[ast.expr, bool]:
    """`p + 1e-8` and `1e-8 + p` as `p`."""
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        for part, other in ((expr.left, expr.right), (expr.right, expr.left)):
            small = (
                isinstance(other, ast.Constant) and isinstance(other.value, float) and 0 < other.value <= 1e-5
            )
            if small or (isinstance(other, ast.Name) and other.id.lower() in ("eps", "epsilon")):
                return part, True
    return expr, False


def _softmax(name: ast.Name, file: SourceFile) -> Op | None:
    """The softmax that `name` was given by its one assignment, when its operand has not changed since."""
    function = file.index.function_of(name)
    bindings = file.bindings.of(function, name.id)
    if len(bindings) != 1 or bindings[0].kind != "assign":
        return None
    softmax = torch_op(bindings[0].value, file, "softmax")
    if softmax is None or (name.lineno, name.col_offset) < (bindings[0].line, bindings[0].column):
        return None
    for read in names_in(softmax.operand):
        if any(bindings[0].line < b.line <= name.lineno for b in file.bindings.of(function, read)):
            return None
    return softmax


def _fix(log: Op, softmax: Op, added: bool, file: SourceFile) -> Fix | None:
    func = softmax.call.func
    if not isinstance(func, ast.Attribute) or b"#" in file.data[slice(*file.bounds(log.call))]:
        return None
    start, end = file.bounds(log.call)
    inner_start, inner_end = file.bounds(softmax.call)
    func_end = file.bounds(func)[1]
    text = file.data[inner_start : func_end - len(func.attr)] + b"log_softmax" + file.data[func_end:inner_end]
    edit = Edit(start, end, text.decode("utf-8", "surrogatepass"))
    if added:
        return Fix(Safety.UNSAFE, (edit,), "the added constant only guarded against `log(0)`")
    return Fix(
        Safety.SAFE, (edit,), "it stays finite where a probability underflows and its logarithm is `-inf`"
    )
