from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import is_literal, keyword_of, method_call
from ptopt.rules.shared.removal import remove_keyword

# Whoever reads `p.grad`, captures a graph or averages gradients by hand may need the tensors to stay.
_NEEDS_TENSORS = re.compile(
    r"\.grad\b(?!\s*=\s*None)|cuda_?graph|cuda\.graph|make_graphed|reduce-overhead|\brpc\b|LBFGS", re.I
)


class ZeroGradKeepsTensors(Rule):
    """Gradients are filled with zeros where they could be released.

    ## What it does
    Finds `zero_grad(set_to_none=False)` in a file that does not read `.grad` itself.

    ## Why it is slow
    The gradients of all parameters stay in memory during the forward pass, one kernel per step writes zeros over
    them, and the backward pass adds to these zeros where it could have stored its result. The default releases them.

    ## Fix safety
    Unsafe: optimizers skip a parameter whose gradient is None, but apply momentum and decay to one whose gradient is
    zero.

    ## Sources
    - [torch.optim.Optimizer.zero_grad](https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html)
    """

    id = "PTO702"
    name = "zero-grad-keeps-tensors"
    family = "optim"
    severity = Severity.LOW
    triggers = ("set_to_none",)
    nodes = (ast.Call,)
    since: ClassVar[Mapping[str, str]] = {"torch": "2.0"}
    when_wrong = "something reads `p.grad` between the steps, or unused parameters must still decay"

    VALID = (
        "optimizer.zero_grad(set_to_none=True)",
        """
        optimizer.zero_grad(set_to_none=False)
        norms = [p.grad.norm() for p in model.parameters()]
        """,
        """
        class Wrapper:
            def zero_grad(self, set_to_none=False):
                self.optimizer.zero_grad(set_to_none=set_to_none)
        """,
    )
    INVALID = (
        Invalid("optimizer.zero_grad(set_to_none=False)  # !", "optimizer.zero_grad()"),
        Invalid("""
            for x, y in loader:
                self.model.zero_grad(set_to_none=False)  # !
                # + self.model.zero_grad()
                self.step(x, y)
        """),
        Invalid("""
            def reset(self):
                for p in self.model.parameters():
                    p.grad = None
                self.optimizer.zero_grad(set_to_none=False)  # !
                # + self.optimizer.zero_grad()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or method_call(node, "zero_grad") is None:
            return
        if not is_literal(keyword_of(node, "set_to_none"), False) or file.search(_NEEDS_TENSORS):
            return
        edit = remove_keyword(file, node, "set_to_none")
        yield Problem(
            node,
            "`set_to_none=False` keeps every gradient in memory through the next forward pass and writes zeros over "
            "it. Drop the argument: the default releases the gradients.",
            0.65,
            fix=Fix(Safety.UNSAFE, (edit,), "every parameter gets a gradient on each step") if edit else None,
        )
