"""Does a piece of code only evaluate, and may autograd be off in it for a reason that cannot be seen?"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.autograd._models import escapes, networks
from ptopt.rules.base import SourceFile
from ptopt.source.index import FunctionNode, Loop

_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing)(_|$|\d)", re.I
)
_INFERS = re.compile(
    r"(^|_)(predict\w*|infer|inference|generate|sample|sampling|rollout|transcribe|translate|detect|classify|recognize|caption"
    r"|extract_features?|embed\w*|encode|inpaint|upscale|enhance|separate|demo)(_|$)",
    re.I,
)
_COLLECTS = re.compile(r"(^|_)(collect|rollout|play|act)(_|$)", re.I)
# Somebody wants a gradient here, or the forward runs once to be looked at.
_WANTS_GRAPH = re.compile(
    r"backward|autograd\.[a-zF]|volatile|requires_grad|enable_grad|retain_grad|\.grad\b|jacobian|hessian|log_?prob|captum|attack|saliency"
    r"|grad_?cam|onnx|\btrace\(|\.export\(|torch\.export|profile|flops|benchmark|functional_call|\bgrad\(|vjp|jvp|TTT|optim"
)
_FRAMEWORK = re.compile(r"Lightning|Callback|Brain$|Trainer$|TestCase|^Pipeline$|ChunkPipeline|Hook$")
_PLAIN_RESULT = re.compile(
    r"^(list\[str\]|str|float|int|bool|np\.ndarray|numpy\.ndarray|ndarray|list\[float\]|list\[int\])$", re.I
)


@dataclass(frozen=True, slots=True)
class Case:
    """Why a place evaluates, and how sure that is."""

    why: str
    confidence: float
    loop: Loop | None = None  # set when a part of the code evaluates, and the rest may train


def worth_a_look(function: FunctionNode | None, file: SourceFile) -> bool:
    """The cheap half of `case_of`: is there any sign at all that this code evaluates?"""
    if networks(file).evaluated:
        return True
    if function is None:
        return any(file.index.function_of(loop) is None for loop in file.index.of_type(ast.For, ast.While))
    if function.returns is not None and _gives_plain(function.returns, file):
        return True
    if function.name == "__call__":
        return "DiffusionPipeline" in file.text
    return any(pattern.search(function.name[:100]) for pattern in (_EVALUATES, _INFERS, _COLLECTS))


def _gives_plain(returns: ast.expr, file: SourceFile) -> bool:
    """Does an annotation name text, numbers or arrays, which carry no graph?"""
    return bool(_PLAIN_RESULT.match(file.source(returns).replace(" ", "").replace("typing.", "")))


def case_of(
    function: FunctionNode | None, calls: list[tuple[ast.Call, str]], evals: dict[str, int], file: SourceFile
) -> Case | None:
    """Does this code evaluate, and from what do we know?"""
    looped = any(next(file.index.loops_of(c), None) is not None for c, _ in calls)
    switched = any(path in evals and evals[path] < call.lineno for call, path in calls)
    over_data = any(file.context.is_eval_loop(loop) for c, _ in calls for loop in file.index.loops_of(c))
    if function is None:
        if looped and switched and not over_data and not file.search(_WANTS_GRAPH):
            call = next(c for c, _ in calls if any(file.index.loops_of(c)))
            outer = list(file.index.loops_of(call))[-1]
            return Case(f"evaluates in the loop at line {outer.lineno}", 0.7, outer)
        return _evaluation_loop(calls, evals, file)
    if file.context.trains(function):
        return _evaluation_loop(calls, evals, file)
    if _WANTS_GRAPH.search(file.source(function)):
        return None
    kept = escapes(function, [c for c, _ in calls], file)
    in_module = _class_is_module(function, file)
    if _EVALUATES.search(function.name[:100]):
        sure = 0.85 if looped and (switched or over_data) else 0.75 if looped or switched else 0.62
        if kept and not looped and not switched:
            sure = 0.45
        return Case("only evaluates", sure - (0.15 if in_module and not switched else 0.0))
    if switched or over_data:
        sure = 0.8 if looped and not kept else 0.72 if not kept else 0.6
        return Case(f"puts `{calls[0][1]}` in eval mode" if switched else "runs over evaluation data", sure)
    if function.name == "__call__" and looped and _is_diffusion_pipeline(function, file):
        return Case("runs the whole pipeline", 0.7)
    if _INFERS.search(function.name[:100]):
        if kept:
            return Case("only infers", 0.4)
        doubtful = function.name.startswith("_") or (in_module and not looped)
        return Case("returns nothing that carries a graph", 0.55 if doubtful else 0.65)
    if _COLLECTS.search(function.name[:100]) and looped and _steps_environment(function, file):
        return Case("collects experience", 0.62)
    if (
        function.returns is not None
        and _gives_plain(function.returns, file)
        and not kept
        and any(p == "self" or p in networks(file).known for _, p in calls)
    ):
        return Case(f"returns only `{file.source(function.returns)}`", 0.62)
    return None


def _evaluation_loop(
    calls: list[tuple[ast.Call, str]], evals: dict[str, int], file: SourceFile
) -> Case | None:
    """A loop over evaluation data in code that does more than evaluate."""
    for call, path in calls:
        for loop in file.index.loops_of(call):
            if file.context.is_eval_loop(loop) and not _WANTS_GRAPH.search(file.source(loop)):
                switched = path in evals and evals[path] < call.lineno
                return Case(f"evaluates in the loop at line {loop.lineno}", 0.85 if switched else 0.7, loop)
    return None


def evaluated_in(function: FunctionNode | None, file: SourceFile) -> dict[str, int]:
    """Networks that the function itself puts in eval mode, with the line."""
    if not networks(file).evaluated:
        return {}
    found: dict[str, int] = {}
    for call in file.calls.calls_in(function):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "eval" and not call.args:
            paths = [file.source(func.value)]
            parent = file.index.parent(call)
            if isinstance(parent, ast.Assign):
                paths += [file.source(target) for target in parent.targets]
            for path in paths:
                found.setdefault(path, call.lineno)
    return found


def may_be_off(call: ast.Call, file: SourceFile) -> bool:
    """Autograd is off here, or may be, by a context that cannot be told."""
    if file.context.grad_off(call):
        return True
    for ancestor, _ in file.index.ancestors(call):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            for item in ancestor.items:
                text = file.source(item.context_expr)
                opaque = re.search(r"ctx|context|mode|grad|eval|infer|stack", text, re.I)
                if opaque and not re.search(r"autocast|amp", text, re.I):
                    return True
    return False


def discarded(call: ast.Call, file: SourceFile) -> bool:
    """A warm-up: nobody keeps the result, so that the graph dies at once."""
    parent = file.index.parent(call)
    while isinstance(parent, ast.IfExp):
        parent = file.index.parent(parent)
    if isinstance(parent, ast.Assign):
        return all(isinstance(t, ast.Name) and t.id == "_" for t in parent.targets)
    return isinstance(parent, ast.Expr)


def in_training(call: ast.Call, function: FunctionNode | None, file: SourceFile) -> bool:
    """Does the call stand in a training loop, or feed one?"""
    step = file.context.training_step(call)
    if step is None:
        return file.context.forward_of(call) is not None
    if step.kind == "loop" and function is not None and step.node is not function:
        return True
    return not (function is not None and file.context.is_eval_function(function))


def wanted_elsewhere(function: FunctionNode, calls: list[tuple[ast.Call, str]], file: SourceFile) -> bool:
    """Does a framework run the function without autograd, or a caller backpropagate what it returns?"""
    cls = file.index.class_of(function)
    if cls is not None and any(_FRAMEWORK.search(file.source(base)) for base in cls.bases):
        return True
    if "test" in function.name and re.search(r"\bassert|pytest|raises", file.source(function)):
        return True
    callers = file.calls.callers(function)
    return any(
        file.context.training_step(c) is not None or file.context.forward_of(c) is not None for c in callers
    ) and (escapes(function, [c for c, _ in calls], file))


def _is_diffusion_pipeline(function: FunctionNode, file: SourceFile) -> bool:
    """diffusers leaves it to each pipeline to turn autograd off."""
    cls = file.index.parent(function)
    if not isinstance(cls, ast.ClassDef) or "onnx" in cls.name.lower():
        return False
    return any("DiffusionPipeline" in file.source(base) for base in cls.bases)


def _class_is_module(function: FunctionNode, file: SourceFile) -> bool:
    cls = file.index.parent(function)
    return isinstance(cls, ast.ClassDef) and file.context.is_module(cls)


def _steps_environment(function: FunctionNode, file: SourceFile) -> bool:
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr == "step"
        and re.search(r"(^|[._])envs?$", file.source(c.func.value))
        for c in file.calls.calls_in(function)
    )
