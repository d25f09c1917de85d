"""Questions about places that rules of several families ask."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from ptopt.rules.base import Evidence
from ptopt.source.context import Step
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Frequency, Often
from ptopt.source.index import FUNCTIONS, FunctionNode
from ptopt.source.options import default_of

# Searches for a learning rate or a batch size, and made-up batches: a few steps before the training.
_TRIAL = re.compile(
    r"(lr|learning_?rate)_?find|find_(best_)?lr|range_test|(^|_)prob(e|ing)(_|$)|synthetic|dummy|auto_?batch|(find|scale)_batch",
    re.I,
)
BENCHMARK_PATH = re.compile(r"(^|[/_])bench(mark)?s?([/_.]|$)", re.I)
_LONGEST_TEST = 50  # of a condition that a message quotes
_FARTHEST = 2  # callers of callers that are looked at
_UPDATES = re.compile(r"optim|\.step\(|train(ing)?_step|Trainer|Lightning|accelerator|\.engine", re.I)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something runs often.

    `words` can stand at the end of a sentence; `node` is the loop or function that repeats it; `step` is the proof of a
    training step, where there is one.
    """

    words: str
    node: ast.AST
    evidence: tuple[Evidence, ...]
    step: Step | None = None

    def prior(self, proven: float, broad: float = 0.4) -> float:
        """Confidence of a rule here: that for a proven training step, or that for another frequent place."""
        return proven if self.step is not None else broad


def often_place(node: ast.AST, file: SourceFile) -> Place | None:
    """Why `node` runs often on the main process: on each training step, batch, forward or call of a library function.

    None at set-up, behind rare guards, in loader workers, in benchmarks, where nothing shows how often it runs, and in a
    way around what the device cannot do.
    """
    if file.guards.device_fallback(node) or (
        file.index.function_of(node) is None and not file.uses_accelerator
    ):
        return None
    step = every_step(node, file)
    if step is not None:
        return Place(step_words(step, file), step.node, step_evidence(step, file), step)
    if BENCHMARK_PATH.search(file.path):
        return None
    frequency = file.frequencies.of(node)
    scope = file.frequencies.iteration_of(node)
    if frequency.often < Often.EVALUATION or frequency.in_worker or scope is None:
        return None
    if file.frequencies.starts_rarely(node):
        return None
    shown = frequency.line and frequency.line != getattr(node, "lineno", 0)
    evidence = (frequency_evidence(frequency),) if shown else ()
    return Place(frequency.reason, scope, evidence)


def frequency_evidence(frequency: Frequency) -> Evidence:
    """The line that shows how often something runs; it names a loop that stands there by no number of its own line."""
    return Evidence(
        frequency.line,
        re.sub(
            rf"of the loop at line {frequency.line}\b", "of this loop", f"runs {frequency.reason}", count=1
        ),
    )


def every_step(node: ast.AST, file: SourceFile) -> Step | None:
    """Proof that `node` runs on every training step of a file that uses an accelerator, else None."""
    if not file.uses_accelerator or BENCHMARK_PATH.search(file.path):
        return None  # a benchmark waits for the GPU on purpose
    step = file.context.training_step(node)
    if step is None or step.full_batch:
        return None
    guard = file.guards.rare(node, step.node)
    if guard is not None and not file.context.holds_the_step(guard, node):
        return None
    if _is_trial(node, file) or _is_trial(step.mark, file):
        return None
    only_gradients = isinstance(step.mark, ast.Call) and file.source(step.mark.func).endswith("backward")
    return None if only_gradients and not file.once(_updates_weights) else _by_a_live_call(step, file)


def may_hold_a_step(file: SourceFile) -> bool:
    """May `every_step` find one for any node of the file? A quick answer."""
    return file.uses_accelerator and file.context.trains_somewhere


def _by_a_live_call(step: Step, file: SourceFile) -> Step:
    """Of several calls that make a function a part of the step, name one that runs by default."""
    function, mark = step.node, step.mark
    if not isinstance(function, FUNCTIONS) or mark not in file.calls.callers(function):
        return step
    if not _off_by_default(mark, file, _FARTHEST):
        return step
    for call in file.calls.callers(function):
        outer = file.context.training_step(call)
        if outer is None or file.guards.rare(call, outer.node) is not None:
            continue
        if not (_off_by_default(call, file, _FARTHEST) or _is_trial(call, file)):
            return replace(step, mark=call)
    return step


def _off_by_default(call: ast.Call, file: SourceFile, depth: int) -> bool:
    """Does the call stand, or do all calls of its function stand, behind an option that is off by default?"""
    for ancestor, child in file.index.ancestors(call):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            default = default_of(ancestor.test, file)
            if default is not None and default is not (child in ancestor.body):
                return True
    function = file.index.function_of(call)
    callers = file.calls.callers(function) if function is not None and depth > 0 else []
    return bool(callers) and all(_off_by_default(caller, file, depth - 1) for caller in callers)


def _updates_weights(file: SourceFile) -> bool:
    """Is there a sign of an optimizer? Attacks, attributions and influence scores backpropagate without one."""
    return bool(file.search(_UPDATES))


def _is_trial(node: ast.AST, file: SourceFile) -> bool:
    """Does the node stand in a function or class that runs a few steps to try something out?"""
    around: list[FunctionNode | ast.ClassDef | None] = [
        file.index.function_of(node),
        file.index.class_of(node),
    ]
    return any(scope is not None and bool(_TRIAL.search(getattr(scope, "name", ""))) for scope in around)


def step_evidence(step: Step, file: SourceFile) -> tuple[Evidence, ...]:
    """The lines that make a place a training step."""
    if isinstance(step.mark, ast.Call):
        return (Evidence(step.mark.lineno, f"the training step: {_one_line(file.source(step.mark))}"),)
    name = step.node.name if isinstance(step.node, FUNCTIONS) else ""
    return (Evidence(step.node.lineno, f"`{name}` runs on every step"),)


def step_words(step: Step, file: SourceFile) -> str:
    """How a message names the step: "on every step of the loop at line 12"; under a condition of the call, with that."""
    if step.kind == "loop":
        return f"on every step of the loop at line {step.node.lineno}"
    name = step.node.name if isinstance(step.node, FUNCTIONS) else "the step"
    if isinstance(step.mark, ast.Call) and not _within(step.mark, step.node):
        return f"on every call of `{name}`, which each training step makes{_where(step.mark, file)} (line {step.mark.lineno})"
    return f"on every call of `{name}`, which is a training step"


def _where(call: ast.Call, file: SourceFile) -> str:
    """The condition under which a function makes the call, such as on an option whose default is not known; or ""."""
    found = []
    for ancestor, child in file.index.ancestors(call):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            holds = child in ancestor.body
            if default_of(ancestor.test, file) is not holds:
                found.append((file.source(ancestor.test), holds))
    if not found:
        return ""
    text, holds = found[0]
    if len(found) > 1 or len(text) > _LONGEST_TEST or "\n" in text or "`" in text:
        return " under some condition"
    return f" {'where' if holds else 'unless'} `{text}`"


def _one_line(text: str, limit: int = 60) -> str:
    joined = " ".join(text.split())
    return f"`{joined if len(joined) <= limit else joined[: limit - 1] + '…'}`"


def _within(call: ast.Call, function: ast.AST) -> bool:
    start, end = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0)
    return start <= call.lineno <= end
