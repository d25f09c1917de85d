"""Questions about places that rules of several families ask."""

from __future__ import annotations

import ast

from ptopt.rules.base import Evidence
from ptopt.source.context import Step
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS


def every_step(node: ast.AST, file: SourceFile) -> Step | None:
    """Proof that `node` runs on every training step of a file that uses an accelerator, else None."""
    if not file.uses_accelerator:
        return None
    step = file.context.training_step(node)
    if step is None or step.full_batch or file.context.rare_guard(node, step.node) is not None:
        return None
    return step


def step_evidence(step: Step, file: SourceFile) -> tuple[Evidence, ...]:
    """The lines that make a place a training step."""
    if isinstance(step.mark, ast.Call):
        return (Evidence(step.mark.lineno, f"the training step: {_one_line(file.source(step.mark))}"),)
    name = step.node.name if isinstance(step.node, FUNCTIONS) else ""
    return (Evidence(step.node.lineno, f"`{name}` runs on every step"),)


def step_words(step: Step) -> str:
    """How a message names the step: "on every step of the loop at line 12"."""
    if step.kind == "loop":
        return f"on every step of the loop at line {step.node.lineno}"
    name = step.node.name if isinstance(step.node, FUNCTIONS) else "the step"
    if isinstance(step.mark, ast.Call) and not _within(step.mark, step.node):
        return f"on every call of `{name}`, which each training step makes (line {step.mark.lineno})"
    return f"on every call of `{name}`, which is a training step"


def _one_line(text: str, limit: int = 60) -> str:
    joined = " ".join(text.split())
    return f"`{joined if len(joined) <= limit else joined[: limit - 1] + '…'}`"


def _within(call: ast.Call, function: ast.AST) -> bool:
    start, end = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0)
    return start <= call.lineno <= end
