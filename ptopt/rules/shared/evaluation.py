"""Does a piece of code only evaluate, and may autograd be off in it for a reason that cannot be seen?"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache

from ptopt.rules.base import TEXTBOOK, Evidence, SourceFile
from ptopt.rules.shared.autograd import may_be_off, run_with_autograd_off
from ptopt.rules.shared.collected import collected, trains_anywhere
from ptopt.rules.shared.graphless import records_nothing
from ptopt.rules.shared.graphs import escapes, listed_with_graph, summed_with_graph
from ptopt.rules.shared.host_results import copies_each_to_host
from ptopt.rules.shared.networks import (
    covered_by,
    is_forward_method,
    network_argument_of,
    network_method_of,
    network_of,
    networks,
    optimised_in,
    path_of,
    runs_argument,
)
from ptopt.rules.shared.places import BENCHMARK_PATH
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, LOOPS, FunctionNode, Loop

_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing)(_|$|\d)", re.I
)
_INFERS = re.compile(
    r"(^|_)(predict\w*|infer|inference|generate|sample|sampling|rollout|transcribe|translate|detect|classify|recognize|caption"
    r"|extract_features?|embed\w*|encode|inpaint|upscale|enhance|separate|demo)(_|$)",
    re.I,
)
_DATA = re.compile(r"load|data|batch|(^|_)dls?\b|_iter\b|valid|test|eval", re.I)
_TRIES_OUT = re.compile(
    r"bench|warm_?up|profile|timing|convert|export|verif|check|compare|test_\w+|latency|throughput", re.I
)
_TOOL = re.compile(r"(^|/)(tests?|stubs?)/|convert|export|bench", re.I)
_READS = frozenset({"numpy", "item", "tolist", "detach", "argmax"})
_WHOLE = re.compile(r"(eval|evaluate|validate|test)$")
_OTHER = re.compile(r"MLX|Mlx|Jax|JAX|Flax|TensorFlow|Keras|Paddle|Onnx|ONNX|^TF[A-Z]")  # frameworks
_SAYS_SO = re.compile(r"#[^\n]*(no_grad|inference_mode)")
_PUBLIC_INFERENCE = re.compile(r"^(generate|infer|inference|transcribe|translate|inpaint|upscale)(_|$)", re.I)
_PLAIN_BASES = frozenset({"object", "ABC", "Protocol", "Module", "Generic"})
_COLLECTS = re.compile(r"(^|_)(collect|rollout|play|act)(_|$)", re.I)
# Somebody wants a gradient here, or the forward is traced or measured.
_WANTS_GRAPH = re.compile(
    r"backward|autograd\.(grad|functional|Function)|requires_grad(?!_?\(False|_? ?= ?False)|enable_grad|retain_grad|\.grad\b|jacobian|hessian"
    r"|captum|attack|saliency|grad_?cam|\btrace\(|\.export\(|torch\.export|flops|functional_call|\bgrad\(|vjp|jvp|TTT"
)
_FRAMEWORK = re.compile(
    r"Lightning|Callback|Brain$|Trainer$|TestCase|^Pipeline$|ChunkPipeline|Hook$|Streamer$|LogitsProcessor$|StoppingCriteria$"
)
_LEFT_TO_IT = frozenset({"prediction_step"})  # the Trainer of transformers turns autograd off nowhere else
_PLAIN_RESULT = re.compile(
    r"^(list\[str\]|str|float|int|bool|np\.ndarray|numpy\.ndarray|ndarray|list\[float\]|list\[int\])$", re.I
)


_UNKNOWN_CALLEE = 0.7  # what it does with the network cannot be seen


@dataclass(frozen=True, slots=True)
class Case:
    """Why a place evaluates, and how sure that is."""

    why: str
    confidence: float
    loop: Loop | None = None  # set when a part of the code evaluates, and the rest may train


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation that autograd records: the passes, which of them to point at, and what is known of the place."""

    case: Case
    calls: list[tuple[ast.Call, str]]
    first: tuple[ast.Call, str]
    evidence: tuple[Evidence, ...]
    facts: dict[str, float]


def evaluation_of(function: FunctionNode | None, file: SourceFile) -> Evaluation | None:
    """The evaluation in the function itself (None: at module level) that autograd records, or None."""
    known = file.once(_evaluations)
    if function not in known:
        known[function] = _evaluation_of(function, file)
    return known[function]


def may_be_sure_of_one(file: SourceFile) -> bool:
    """May the file have an evaluation that `case_of` is surer than `SURE` of? A quick answer.

    That takes a network in eval mode, a loop over evaluation data, or a function that is named like an evaluation or an inference.
    """
    if networks(file).evaluated:
        return True
    places: set[FunctionNode | None] = set()
    for outer, function in file.index.functions_of(file.calls.functions):
        name = function.name if outer is None else _name_of(function, file)
        if function.name == "__call__" or _evaluates_or_infers(name):
            places.add(function)
    return any(_runs_a_network(place, file) for place in places) or any(
        file.context.is_eval_loop(loop)
        for place, loop in file.index.functions_of(file.index.of_type(ast.For, ast.AsyncFor))
        if place not in places and _runs_a_network(place, file)
    )


@lru_cache(maxsize=4096)  # methods of many classes have the same names
def _evaluates_or_infers(name: str) -> bool:
    return bool(_EVALUATES.search(name) or _INFERS.search(name))


@remembered
def _runs_a_network(place: FunctionNode | None, file: SourceFile) -> bool:
    """Does the function itself (None: the module) run one?"""
    calls = file.calls.calls_in(place)
    return any(network_of(call, file) or network_method_of(call, (), file) for call in calls)


def _evaluations(file: SourceFile) -> dict[FunctionNode | None, Evaluation | None]:
    return {}


def _evaluation_of(function: FunctionNode | None, file: SourceFile) -> Evaluation | None:
    if function is not None and function.name in ("forward", "__init__", "training_step"):
        return None
    if function is not None and any(path_of(d).endswith("property") for d in function.decorator_list):
        return None  # a size or the like, found out once
    if not _torch_is_at_hand(function, file) or not worth_a_look(function, file):
        return None
    evals = evaluated_in(function, file)
    calls = [
        (call, covered_by(path, evals) or path)
        for call in file.calls.calls_in(function)
        if (
            path := network_of(call, file)
            or network_method_of(call, evals, file)
            or network_argument_of(call, evals, file)
        )
        and path not in networks(file).frozen
        and not in_training(call, function, file)
    ]
    if not calls or computes_forces(file):
        return None
    if function is not None and (
        _SAYS_SO.search(file.source(function)) or _is_left_to_others(function, file)
    ):
        return None  # a comment or a framework says so: before other files are read
    on = [(c, p) for c, p in calls if not may_be_off(c, file)]
    off = {p for _, p in calls} - {p for _, p in on}
    if len(on) < len(calls) and (not off or not on):
        return None  # the author knows, and left out a warm-up or the like
    calls = [(c, p) for c, p in on if not discarded(c, file)]
    case = case_of(function, calls, evals, file) if calls else None
    recording = [(c, p) for c, p in calls if not records_nothing(c, file)] if case is not None else calls
    if len(recording) < len(calls):
        calls = recording
        case = case_of(function, calls, evals, file) if calls else None
    if case is None or (function is not None and wanted_elsewhere(function, calls, file)):
        return None
    if function is not None and run_with_autograd_off(function, file):
        return None
    if function is not None and _run_by_a_base(function, file):
        case = replace(case, confidence=min(case.confidence, 0.45))
    if case.loop is not None:
        calls = [(c, p) for c, p in calls if file.index.within(c, case.loop)]
    first = next(((c, p) for c, p in calls if p in evals), calls[0])
    optimised = optimised_in(file)
    argument = network_argument_of(first[0], evals, file) == first[1] and not network_of(first[0], file)
    if argument and not runs_argument(*first, file):
        case = replace(case, confidence=min(case.confidence, _UNKNOWN_CALLEE))
    if _is_textbook(function, case, first, evals, file):
        case = replace(case, confidence=TEXTBOOK)
    facts = {
        "kept": float(function is not None and escapes(function, [c for c, _ in calls], file)),
        "switched": float(first[1] in evals),
        "evaluated": float(first[1] in networks(file).evaluated),
        "in_class": float(function is not None and file.index.class_of(function) is not None),
        "in_module": float(function is not None and _class_is_module(function, file)),
        "private": float(function is not None and function.name.startswith("_")),
        "file_trains": float(trains_anywhere(file)),
        "optimised": float(first[1] in optimised),
        "others_off": float(len(off)),
        "by_method": float(not network_of(first[0], file)),
        "passes": float(len(calls)),
        "callers": float(len(file.calls.callers(function)) if function is not None else 0),
    }
    return Evaluation(case, calls, first, _evidence(function, case.loop, calls, evals, file), facts)


def _is_textbook(
    function: FunctionNode | None,
    case: Case,
    first: tuple[ast.Call, str],
    evals: dict[str, int],
    file: SourceFile,
) -> bool:
    """Is the network put in eval mode right here, run over data, and nothing left of it that carries a graph?"""
    call, path = first
    if (
        path not in evals
        or not (network_of(call, file) or is_forward_method(call) or runs_argument(call, path, file))
        or _TRIES_OUT.search(_name_of(function, file) if function else "")
    ):
        return False
    if BENCHMARK_PATH.search(file.path) or _TOOL.search(file.path):
        return False
    if case.loop is not None:
        return case.confidence >= 0.85
    over_data = any(
        isinstance(loop, ast.For) and _DATA.search(file.source(loop.iter))
        for loop in file.index.loops_of(call)
    )
    if function is None or not over_data or case.confidence < 0.8:
        return False
    return not escapes(function, [call], file) or _keeps_all_batches(function, call, file)


def _keeps_all_batches(
    function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, file: SourceFile
) -> bool:
    """Does a function that is called an evaluation sum with graphs over its batches?

    The sum that it returns carries them, too; where a caller goes backward through it, no evaluation was found.
    """
    return bool(_EVALUATES.search(function.name)) and summed_with_graph([call], file) is not None


def kept_with_graph(calls: list[ast.Call], file: SourceFile) -> ast.expr | None:
    """The list, or the tensor, in which a loop over data keeps what each pass gives, with its graph."""
    by_loop: defaultdict[Loop, list[ast.Call]] = defaultdict(list)
    for call in calls:
        for loop in file.index.loops_of(call):
            by_loop[loop].append(call)
    for loop, inside in by_loop.items():
        if isinstance(loop, ast.For) and (
            file.context.is_eval_loop(loop) or _DATA.search(file.source(loop.iter))
        ):
            kept = listed_with_graph(inside, loop, file)
            if kept is not None:
                return kept
    return None


def _evidence(
    function: FunctionNode | None,
    loop: Loop | None,
    calls: list[tuple[ast.Call, str]],
    evals: dict[str, int],
    file: SourceFile,
) -> tuple[Evidence, ...]:
    """The passes, and the lines that show that the function, or its loop, evaluates."""
    run = [(c, ran if (ran := path_of(c.func)).startswith(f"{p}.") else p) for c, p in calls]
    found = [Evidence(c.lineno, f"runs `{ran}` with autograd on") for c, ran in run]
    found += [
        Evidence(evals[p], "eval mode, which records as well")
        for p in dict.fromkeys(p for _, p in calls)
        if p in evals
    ]
    if function is None:
        return tuple(found)
    if loop is None:
        found.append(Evidence(function.lineno, f"`{function.name}`, where autograd could be off"))
    reads = 0
    for call in file.calls.calls_in(function):
        if loop is not None and not file.index.within(call, loop):
            continue  # the rest may train
        if any(k.arg == "volatile" for k in call.keywords):
            found.append(Evidence(call.lineno, "`volatile` has had no effect since torch 0.4"))
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _READS and reads < 2:
            reads += 1
            taken = "taken off the graph" if call.func.attr == "detach" else "read as plain numbers"
            found.append(Evidence(call.lineno, f"a result is {taken}, so no gradient is wanted"))
    return tuple(sorted(found, key=lambda evidence: evidence.line))


def _torch_is_at_hand(function: FunctionNode | None, file: SourceFile) -> bool:
    """Is torch imported at module level, or in the function itself, and is its class for no other framework?"""
    places = file.once(_torch_imports)
    cls = file.index.class_of(function) if function is not None else None
    return (None in places or function in places) and not (cls is not None and _OTHER.search(cls.name))


def _torch_imports(file: SourceFile) -> frozenset[FunctionNode | None]:
    """The functions that import torch or a part of it; None: the module."""
    names = (
        (statement, name)
        for statement in file.index.of_type(ast.Import, ast.ImportFrom)
        for name in (
            [statement.module or ""] if isinstance(statement, ast.ImportFrom) else _modules(statement)
        )
    )
    return frozenset(file.index.function_of(at) for at, name in names if name.partition(".")[0] == "torch")


def _modules(statement: ast.Import) -> list[str]:
    return [alias.name for alias in statement.names]


def computes_forces(file: SourceFile) -> bool:
    """Does the project derive forces from an energy inside its networks, so that even an evaluation needs autograd?

    Other files are read for it: ask where there is an evaluation.
    """
    return file.repository.mentions(b"autograd.grad(") and file.repository.mentions(b"forces")


def worth_a_look(function: FunctionNode | None, file: SourceFile) -> bool:
    """The cheap half of `case_of`: may this code be evaluation at all?"""
    if function is None:
        return bool(networks(file).evaluated) or any(
            file.index.function_of(loop) is None for loop in file.index.of_type(ast.For, ast.While)
        )
    if not _class_is_module(function, file) or function in file.once(_functions_with_loops):
        return True
    if networks(file).evaluated:
        return True
    # As most methods of modules, it may not: there, its name or its annotation has to say so.
    name = _name_of(function, file)
    return (
        function.name == "__call__"
        or any(pattern.search(name) for pattern in (_EVALUATES, _INFERS, _COLLECTS))
        or (function.returns is not None and _gives_plain(function.returns, file))
    )


def _functions_with_loops(file: SourceFile) -> frozenset[FunctionNode | None]:
    return frozenset(file.index.function_of(loop) for loop in file.index.of_type(*LOOPS))


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
        if switched and not over_data and not file.search(_WANTS_GRAPH):
            call = next((c for c, _ in calls if any(file.index.loops_of(c))), None)
            if call is not None:
                outer = list(file.index.loops_of(call))[-1]
                return Case(f"evaluates in the loop at line {outer.lineno}", 0.7, outer)
            if not any(file.context.is_module(cls) for cls in file.index.of_type(ast.ClassDef)):
                return Case(f"runs `{calls[0][1]}` in eval mode", 0.5)
            return None  # a module that tries itself out
        return _evaluation_loop(calls, evals, file) or _collects(function, calls, file)
    if file.context.trains(function) or file.context.says_training(function):
        return _evaluation_loop(calls, evals, file)
    if _WANTS_GRAPH.search(file.source(function)):
        return None
    kept = escapes(function, [c for c, _ in calls], file)
    in_module = _class_is_module(function, file)
    name = _name_of(function, file)
    if _EVALUATES.search(name):
        sure = 0.85 if looped and (switched or over_data) else 0.75 if looped or switched else 0.62
        if kept and not looped and not switched:
            if _passes_on(function, calls) or (in_module and not _WHOLE.match(function.name)):
                return None  # a part of a module, as its callers run it
            sure = 0.45
        return Case("only evaluates", sure - (0.15 if in_module and not switched else 0.0))
    if switched or over_data:
        if kept and any(p == "self" for _, p in calls):
            return None  # a module that evaluates itself: what for, its callers know
        sure = 0.8 if looped and not kept else 0.72 if not kept else 0.6
        return Case(f"puts `{calls[0][1]}` in eval mode" if switched else "runs over evaluation data", sure)
    if function.name == "__call__" and looped and _is_diffusion_pipeline(function, file):
        return Case("runs the whole pipeline", 0.7)
    if _INFERS.search(name):
        if kept and not in_module and copies_each_to_host(function, [c for c, _ in calls], file):
            return Case("collects results on the host", 0.6)
        if kept and not (_PUBLIC_INFERENCE.search(name) and _stands_alone(function, file)):
            return None  # as likely run by its training
        if kept:
            return Case("infers by its name, and this file backpropagates nothing that it returns", 0.4)
        doubtful = function.name.startswith("_") or (in_module and not looped)
        over_loader = any(
            isinstance(loop, ast.For)
            and _DATA.search(over := file.source(loop.iter))
            and not over.startswith("range(")
            for c, _ in calls
            for loop in file.index.loops_of(c)
        )
        if over_loader and not doubtful and not trains_anywhere(file):
            return Case("runs over a data set, and returns nothing that carries a graph", 0.8)
        return Case("returns nothing that carries a graph", 0.45 if doubtful else 0.65)
    if _COLLECTS.search(name) and looped and _steps_environment(function, file):
        return Case("collects experience", 0.62)
    if (
        function.returns is not None
        and _gives_plain(function.returns, file)
        and not kept
        and any(p == "self" or p in networks(file).known for _, p in calls)
    ):
        return Case(f"returns only `{file.source(function.returns)}`", 0.62)
    resting = next((p for _, p in calls if p in networks(file).evaluated), "")
    if resting and not kept and not trains_anywhere(file):
        return Case(f"runs `{resting}`, which is in eval mode, in a file that never trains", 0.55)
    if not kept and not in_module and not trains_anywhere(file) and _result_is_read(function, file):
        return Case("returns nothing that carries a graph", 0.4)
    return _collects(function, calls, file) if kept and not in_module else None


def _collects(
    function: FunctionNode | None, calls: list[tuple[ast.Call, str]], file: SourceFile
) -> Case | None:
    """Code that adds up, or copies to the host, what a network gives for many inputs, where nothing trains."""
    if file.search(_WANTS_GRAPH) or any(path == "self" for _, path in calls):
        return None
    passes = [call for call, _ in calls]
    if not collected(function, passes, file):
        return None
    outer = [list(file.index.loops_of(call))[-1] for call in passes]
    return Case("collects results where nothing trains", 0.5, outer[0] if function is None else None)


def _run_by_a_base(function: FunctionNode, file: SourceFile) -> bool:
    """May a class of the project, which this one derives from, run the method under `no_grad`? Nothing here calls it."""
    cls = file.index.parent(function)
    if not isinstance(cls, ast.ClassDef) or file.calls.callers(function):
        return False
    if function.name in _LEFT_TO_IT:
        return False
    own = {other.name for other in file.index.of_type(ast.ClassDef)}
    return any(
        last_name(base) not in own | _PLAIN_BASES and not file.imports.qualified(base).startswith("torch.")
        for base in cls.bases
    )


def _passes_on(function: FunctionNode, calls: list[tuple[ast.Call, str]]) -> bool:
    """Does it return what one pass gives as it is? What for, its callers know."""
    last = function.body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    names = {
        target.id
        for stmt in function.body
        if isinstance(stmt, ast.Assign) and any(stmt.value is call for call, _ in calls)
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    return any(
        any(part is call for call, _ in calls) or (isinstance(part, ast.Name) and part.id in names)
        for part in parts
    )


def _stands_alone(function: FunctionNode, file: SourceFile) -> bool:
    """Not a method of a module whose `forward` is elsewhere, and may be made of it."""
    cls = file.index.parent(function)
    if not isinstance(cls, ast.ClassDef) or not file.context.is_module(cls):
        return True
    return file.calls.method(cls, "forward") is not None


def _result_is_read(function: FunctionNode, file: SourceFile) -> bool:
    """Does the function turn tensors into plain values, or take them off the graph?"""
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr in _READS for c in file.calls.calls_in(function)
    )


def _name_of(function: FunctionNode, file: SourceFile) -> str:
    """Name of the function, with those of the functions that it is nested in."""
    names = [function.name]
    names += [a.name for a, _ in file.index.ancestors(function) if isinstance(a, FUNCTIONS)]
    return ".".join(reversed(names))[-100:].replace(".", "_")


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
            loop = next(file.index.loops_of(call), None)
            if isinstance(loop, ast.For) and file.source(loop.target) in paths:
                paths.append(_collection(loop.iter))  # `for model in models: model.eval()`
            for path in filter(None, paths):
                found.setdefault(path, call.lineno)
    return found


def _collection(iterable: ast.expr) -> str:
    """`models` of a loop over `models` or `models.values()`."""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) and not iterable.args:
        iterable = iterable.func.value if iterable.func.attr == "values" else iterable
    return path_of(iterable)


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


def _is_left_to_others(function: FunctionNode, file: SourceFile) -> bool:
    """Does a framework run the function without autograd, or is it a test of it?"""
    cls = file.index.class_of(function)
    if (
        function.name not in _LEFT_TO_IT
        and cls is not None
        and any(_FRAMEWORK.search(file.source(base)) for base in cls.bases)
    ):
        return True
    return "test" in function.name and bool(re.search(r"\bassert|pytest|raises", file.source(function)))


def wanted_elsewhere(function: FunctionNode, calls: list[tuple[ast.Call, str]], file: SourceFile) -> bool:
    """Does a caller backpropagate what the function returns?"""
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
