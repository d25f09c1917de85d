from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.project.facts import Pin, ProjectFacts
from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, method_call
from ptopt.rules.shared.arguments import may_take
from ptopt.source.frequency import Often

# Their optimizers and engines go by the names of torch's, and have a `zero_grad` of their own.
_LOOK_ALIKES = re.compile(r"\b(deepspeed|apex)\b|\bFP16_?Optimizer\b", re.I)
_LOOK_ALIKE_WORDS = ("deepspeed", "apex", "fp16")


class ZeroGradFillsZeros(Rule):
    """`zero_grad()` fills gradients with zeros in the torch versions that the project admits.

    ## What it does
    Finds `zero_grad()` without an argument in a project whose requirements exclude torch 2.0 and later.

    ## Why it is slow
    Before torch 2.0 the default keeps every gradient in memory through the forward pass, writes zeros over it and
    lets the backward pass add to the zeros. `set_to_none=True` releases it.

    ## Fix safety
    Unsafe: optimizers skip a parameter whose gradient is None; the argument exists since torch 1.7.

    ## Sources
    - [torch.optim.Optimizer.zero_grad](https://docs.pytorch.org/docs/1.13/generated/torch.optim.Optimizer.zero_grad.html)
    """

    id = "PTO731"
    name = "zero-grad-fills-zeros"
    family = "optim"
    severity = Severity.LOW
    most_stated = 0.5
    triggers = ("zero_grad",)
    nodes = (ast.Call,)
    calls = frozenset({"zero_grad"})
    when_wrong = "something reads `p.grad` between the steps, or torch is older than 1.7"

    since: ClassVar[Mapping[str, str]] = {"torch": "1.7"}
    PROJECT = ProjectFacts({"torch": (Pin("torch", "<2.0", False, "setup.py", 9),)})

    VALID = (
        "optimizer.zero_grad(set_to_none=True)",
        """
        class Wrapper(torch.optim.SGD):
            def zero_grad(self):
                super().zero_grad()
        """,
        """
        class Wrapper:
            def __init__(self, optimizer):
                self.wrapped = optimizer

            def zero_grad(self):
                self.wrapped.zero_grad(set_to_none=True)

        def train(optimizer, loader):
            for x in loader:
                optimizer.zero_grad()
        """,
        """
        import deepspeed
        import torch

        engine, *_ = deepspeed.initialize(model=model)
        engine.zero_grad()
        """,
        "optimizer.step()",
    )
    INVALID = (
        Invalid("optimizer.zero_grad()  # !", "optimizer.zero_grad(set_to_none=True)"),
        Invalid("""
            for x, y in loader:
                self.optimizer.zero_grad()  # !
                # + self.optimizer.zero_grad(set_to_none=True)
                criterion(self.model(x), y).backward()
                self.optimizer.step()
        """),
        Invalid("model.zero_grad()  # !", "model.zero_grad(set_to_none=True)"),
        Invalid("""
            class Wrapper:
                def zero_grad(self):
                    self.clear()

            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()  # !
            # + optimizer.zero_grad(set_to_none=True)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        receiver = method_call(node, "zero_grad")
        if receiver is None or not isinstance(node, ast.Call) or node.args or node.keywords:
            return
        if isinstance(receiver, ast.Call) or not file.facts.excludes("torch", "2.0"):
            return  # `super().zero_grad()`, or a torch whose default releases them
        if file.calls.resolve(node) is not None or file.search(_LOOK_ALIKES, _LOOK_ALIKE_WORDS):
            return
        if not may_take(node, "set_to_none", file):
            return  # or a method of the project's own, which clears the gradients in its own way
        often = file.frequencies.of(node).often
        yield Problem(
            node,
            f"With {file.facts.describe('torch')}, `{file.source(receiver)}.zero_grad()` writes zeros over every gradient "
            "and keeps it through the forward pass. `zero_grad(set_to_none=True)` releases it.",
            0.5,
            fix=Fix(
                Safety.UNSAFE,
                (add_keyword(file, node, "set_to_none=True"),),
                "nothing reads `p.grad` between the steps",
            ),
            facts={"per_step": float(often >= Often.STEP)},
        )
