from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.shared.places import step_evidence, step_words
from ptopt.source.index import FUNCTIONS


class CompileInLoop(Rule):
    """torch.compile is called again on every step.

    ## What it does
    Finds `torch.compile(...)` in a training step, in the `forward` of a module, or in a loop over evaluation data,
    unless a condition keeps it to the first time.

    ## Why it is slow
    Each call makes a new wrapper, which must look at the code again and check all guards on its first run; a function
    that is itself made anew on each step (a lambda, a closure) is compiled again, which takes seconds.

    ## When this is wrong
    When the result is kept and the code around runs once.

    ## Fix safety
    There is no fix: where the compiled function should live is the author's choice.

    ## Sources
    - [torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)
    """

    id = "PTO761"
    name = "compile-in-loop"
    family = "compile"
    triggers = ("torch.compile(", "compile(")
    since: ClassVar[Mapping[str, str]] = {"torch": "2.0"}
    nodes = (ast.Call,)
    calls = frozenset({"compile"})
    when_wrong = "the code around the call runs once"

    VALID = (
        """
        step = torch.compile(train_step)
        for batch in loader:
            step(model, batch.cuda()).backward()
            optimizer.step()
        """,
        """
        for i, block in enumerate(model.blocks):
            model.blocks[i] = torch.compile(block)
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                if self.compiled is None:
                    self.compiled = torch.compile(self.inner)
                return self.compiled(x)
        """,
        """
        for mode in ("default", "max-autotune"):
            candidate = torch.compile(model, mode=mode)
            measure(candidate)
        """,
    )
    INVALID = (
        Invalid("""
            for batch in loader:
            # ~ compiled = torch.compile(model)
            # ~ for batch in loader:
                compiled = torch.compile(model)  # !
                # ~
                compiled(batch).loss.backward()
                optimizer.step()
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    return torch.compile(self.inner)(x)  # !
        """),
        Invalid("""
            for batch in val_loader:
                run = torch.compile(model, mode="reduce-overhead")  # !
                scores.append(run(batch))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or file.imports.qualified(node.func) != "torch.compile":
            return
        if not node.args or _conditional(node, file):
            return
        step = file.context.training_step(node)
        loop = next(file.index.loops_of(node), None)
        forward = file.context.forward_of(node)
        evidence: tuple[Evidence, ...]
        if step is not None and not step.full_batch:
            where, evidence, cause = step_words(step, file), step_evidence(step, file), step.node
        elif forward is not None:
            where, cause = "on every forward pass", forward
            evidence = (Evidence(forward.lineno, "runs on every forward pass"),)
        elif loop is not None and file.context.is_eval_loop(loop):
            where, cause = f"on every batch of the loop at line {loop.lineno}", loop
            evidence = (Evidence(loop.lineno, "the loop over batches"),)
        else:
            return
        yield Problem(
            node,
            f"`torch.compile` is called {where}: each call makes a new wrapper that checks its guards, or compiles, "
            "again. Compile once, before, and keep the result.",
            0.8,
            evidence,
            cause=cause,
        )


def _conditional(node: ast.AST, file: SourceFile) -> bool:
    """Does a condition, or an early return above, keep the call to the first time?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return any(
                isinstance(s, ast.If) and s.lineno < getattr(child, "lineno", 0) for s in ancestor.body
            )
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.Try)):
            return True
    return False
