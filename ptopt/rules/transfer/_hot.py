"""Places where a copy to the device is paid again and again: steps, forward passes, loops over batches."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import Evidence
from ptopt.rules.shared.places import every_step, often_place, step_evidence, step_words
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, Loop, walk

_BATCHES = re.compile(r"loader|dataloader|batches|timesteps|_iter\b|trainset|data_iterator", re.I)
_RUNS_ONCE = re.compile(
    r"^_?(test|demo|main|example|check|run)(_|$)", re.I
)  # one step, to show or check something
_STILL_EMPTY = re.compile(r"\bNone\b|\bin\b|hasattr|cache|self\..*[!<>]|[!<>].*self\.", re.I)
_TIMESTEPS = re.compile(r"timesteps", re.I)


@dataclass(frozen=True, slots=True)
class Hot:
    """Proof that a place runs often: in words for a message, with the lines that show it."""

    kind: str  # "step" | "forward" | "loop" | "often": anything else that `often_place` shows
    words: str
    node: ast.AST  # the loop or the function
    evidence: tuple[Evidence, ...]


def hot_place(node: ast.AST, file: SourceFile) -> Hot | None:
    """Why `node` runs on every step, forward pass or batch; None at set-up, in caches and behind rare guards."""
    if is_cached(node, file) or file.guards.device_fallback(node):
        return None
    step = every_step(node, file)
    if step is not None and not _RUNS_ONCE.search(getattr(step.node, "name", "")):
        return Hot("step", step_words(step, file), step.node, step_evidence(step, file))
    loop = batch_loop(node, file)
    if loop is not None and file.guards.rare(node, loop) is None:
        over = "step" if _TIMESTEPS.search(_iterated(loop, file)) else "batch"
        words = f"for every {over} of the loop at line {loop.lineno}"
        return Hot("loop", words, loop, (Evidence(loop.lineno, f"the loop runs once a {over}"),))
    forward = file.context.forward_of(node)
    if forward is not None and file.guards.rare(node) is None and _each_call_of(forward, node, file):
        return Hot(
            "forward",
            f"on every call of `{forward.name}`",
            forward,
            (Evidence(forward.lineno, "the forward pass"),),
        )
    place = often_place(node, file)
    return Hot("often", place.words, place.node, place.evidence) if place is not None else None


def _each_call_of(forward: FunctionNode, node: ast.AST, file: SourceFile) -> bool:
    """Does each run of `forward` reach the function around the node, rather than the first alone?"""
    function = file.index.function_of(node)
    if function is None or function is forward:
        return True
    calls = (c for c in file.calls.callers(function) if file.index.function_of(c) is forward)
    return any(file.guards.rare(call) is None for call in calls)


def batch_loop(node: ast.AST, file: SourceFile) -> Loop | None:
    """The loop over batches or diffusion time steps that runs `node`; None when there is none in its function."""
    for loop in file.index.loops_of(node):
        if _BATCHES.search(_iterated(loop, file)) and not file.context.goes_through_sets(loop):
            return loop
    return None


def is_cached(node: ast.AST, file: SourceFile) -> bool:
    """Is the value kept for later: in an attribute or a table that a test says is still empty?"""
    statement = file.index.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    kept = any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in targets)
    function = file.index.function_of(node)
    if function is not None and any("cache" in file.source(d) for d in function.decorator_list):
        return True
    if not kept:
        return False
    names = {n.attr for t in targets for n in walk(t) if isinstance(n, ast.Attribute)}
    names |= {t.value.id for t in targets if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)}
    tests = [a.test for a, _ in file.index.ancestors(statement) if isinstance(a, ast.If)]
    kept_names = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    return any(_STILL_EMPTY.search(text := file.source(t)) or kept_names.search(text) for t in tests)


@remembered
def bound_in(root: ast.AST) -> frozenset[str]:
    """Names, and names of attributes, that the code under `root` binds or changes by subscript."""
    names: set[str] = set()
    for node in walk(root):
        if isinstance(node, FUNCTIONS):
            names.add(node.name)
        elif isinstance(node, ast.AugAssign):
            names.add(_last_name(node.target))
        elif isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            names.add(_last_name(node))
    return frozenset(names)


@remembered
def attributes_bound_in(root: ast.AST) -> frozenset[str]:
    """Names of attributes, of whatever object, that the code under `root` binds or changes by subscript."""
    names: set[str] = set()
    for node in walk(root):
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            target = node
            while isinstance(target, (ast.Subscript, ast.Starred)):
                target = target.value
            if isinstance(target, ast.Attribute):
                names.add(target.attr)
    return frozenset(names)


@remembered
def attributes_set_in(method: ast.AST) -> frozenset[str]:
    """Attributes of `self` that the code binds or changes by subscript."""
    names: set[str] = set()
    for node in walk(method):
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            target = node
            while isinstance(target, (ast.Subscript, ast.Starred)):
                target = target.value
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                names.add(target.attr)
    return frozenset(names)


def _last_name(node: ast.AST) -> str:
    """`x` of `*x` and of `x[0]`, too."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return last_name(node)


def _iterated(loop: Loop, file: SourceFile) -> str:
    return file.source(loop.test if isinstance(loop, ast.While) else loop.iter)
