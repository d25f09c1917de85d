from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import runs_once, torch_op
from ptopt.rules.shared.flow import value_of
from ptopt.source.frequency import Often
from ptopt.source.uses import COMPARED, REPORTED


class AbsBeforeMax(Rule):
    """The absolute values of a whole tensor are written out only to find the largest.

    ## What it does
    Finds `x.abs().max()`, `x.abs().amax(dim)` and `torch.max(torch.abs(x))` over tensors, also through a name that is read once.

    ## Why it is slow
    `abs` makes a second tensor as large as x, which is written and read back once. The norm of infinite order and `aminmax` find
    the same number in one pass over x, without it.

    ## When this is wrong
    When x has a few elements or holds integers, or its gradient at equal maxima matters.

    ## Fix safety
    There is no fix: integers are not accepted, and the gradient at equal maxima differs.

    ## Sources
    - [torch.linalg.vector_norm](https://docs.pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html)
    - [torch.aminmax](https://docs.pytorch.org/docs/stable/generated/torch.aminmax.html)
    """

    id = "PTO882"
    name = "abs-before-max"
    family = "memory"
    most_stated = 0.4
    since: ClassVar[Mapping[str, str]] = {"torch": "1.9"}
    partly: ClassVar[frozenset[str]] = frozenset({"torch.aminmax"})
    nodes = (ast.Call,)
    calls = frozenset({"max", "amax"})
    triggers = ("abs",)
    when_wrong = "the tensor has a few elements or holds integers"

    VALID = (
        """
        def forward(self, x):
            return torch.linalg.vector_norm(x, float("inf"))
        """,
        """
        def forward(self, x):
            return x.max()
        """,
        """
        peak = np.abs(wave).max()
        """,
    )
    INVALID = (
        Invalid("""
            @torch.no_grad()
            def quantize(weight: torch.Tensor):
                scale = weight.abs().amax(dim=1, keepdim=True) / 127  # !
                # ~ scale = torch.linalg.vector_norm(weight, float("inf"), dim=1, keepdim=True) / 127
                return weight / scale
        """),
        Invalid("""
            class Fake(nn.Module):
                def forward(self, x):
                    top = torch.max(torch.abs(x))  # !
                    return x / top
        """),
        Invalid("""
            class Observer(nn.Module):
                def forward(self, x):
                    size = x.detach().abs()
                    self.scale = size.max()  # !
                    return x
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "max", "amax")
        if op is None:
            return
        if op.name == "max" and op.rest and not isinstance(op.rest[0], (ast.Constant, ast.UnaryOp)):
            return  # the larger of two tensors
        inner = torch_op(value_of(op.operand, file), file, "abs")
        if (
            inner is None
            or inner.rest
            or not (file.values.is_tensor(inner.operand) or not inner.is_method or not op.is_method)
        ):
            return
        if (
            isinstance(op.operand, ast.Name)
            and len(file.uses.loads(file.index.function_of(op.call), op.operand.id)) != 1
        ):
            return
        frequency = file.frequencies.of(op.call)
        ways = file.uses.of(op.call)
        if (
            frequency.often < Often.EVALUATION
            or frequency.in_worker
            or ways <= {REPORTED, COMPARED}
            or runs_once(op.call, file)
        ):
            return
        if (
            isinstance(inner.operand, ast.BinOp)
            or file.source(file.index.statement_of(op.call)).count("abs(") > 1
        ):
            return  # an error that is looked at, or absolute values that are needed anyway
        dim = op.argument(0, "dim", "axis")
        more = f", dim={file.source(dim)}" if dim is not None else ""
        yield Problem(
            op.call,
            f"{quote(file, op.call, 50)} writes the absolute values of all of {quote(file, inner.operand, 30)} to memory only to find the "
            f'largest. `torch.linalg.vector_norm({file.source(inner.operand)}, float("inf"){more})` finds it in one pass'
            + (
                ", and so does `torch.aminmax`, for integers too." if file.facts.has("torch.aminmax") else "."
            ),
            0.4,
            cause=file.index.statement_of(op.call),
            subject=inner.operand,
            facts={
                "no_grad": file.context.grad_off(op.call),
                "dim": dim is not None,
            },
        )
