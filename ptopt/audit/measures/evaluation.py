"""Does an evaluation run without a graph?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.calling import callers, holds_of_all_calls, lineage
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.phases import is_of_evaluating_phase
from ptopt.audit.setup import Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, LOOPS, FunctionNode

_BY_FRAMEWORK = ("transformers", "TRL", "Lightning")
RECORDS_GRAPH = "an evaluation records the graph"
_EVAL_NAME = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|vali|val|test|predict|infer)(_|$|\d)", re.I
)
_PIPELINE = re.compile(r"^diffusers\.(\w+\.)*\w*Pipeline(\.from_\w+)?$")
_TRAINER = re.compile(r"Trainer$")
_EVAL_POSITION = 4  # of `eval_dataset` in transformers' `Trainer`
_FORWARD = re.compile(
    r"(^|\.)(\w*model|net|network|generator|module|encoder|policy|unet|backbone|classifier)\w*"
    r"(\.module)?(\.(forward(_\w+)?|infer|generate|sample|predict|(en|de)code(_\w+)?|loss))?\(",
    re.I,
)

_TURNS_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled")
_SHOWS = re.compile(
    r"(val|validate|validation|test|evaluate|render|sample|generate|infer|inference|predict)(_|$)"
)
_NO_FORWARD = re.compile(
    r"param|state|config|name|path|weight|dict|load|save|size|count|summary|info|init|build|create|get_|make|set_|update|print|to_model",
    re.I,
)


@remembered
def _is_forward(call: ast.Call) -> bool:
    """Does the name of what is called say that it is the network?"""
    text = text_of(call.func)
    return bool(_FORWARD.search(text + "(")) and not _NO_FORWARD.search(text.rpartition(".")[2])


def evaluation(setup: Setup) -> Measure:
    key, title = "evaluation", "Evaluation without a graph"
    if setup.framework in ("transformers", "TRL"):
        arguments = TrainerArguments(setup)
        for name in ("eval_strategy", "evaluation_strategy"):  # the second until transformers 4.41
            strategy = arguments.of(name)
            never = strategy.known and str(strategy.value).lower() in ("no", "false")
            if never and not setup.calls("evaluate"):
                return setup.not_applicable(key, title, f"nothing is evaluated: `{name}` is no")
        if not setup.calls("evaluate") and (trainer := _without_evaluation(setup)) is not None:
            return Measure(
                key, title, State.NOT_APPLICABLE, "no trainer is given an `eval_dataset`", (trainer,)
            )
        if recording := _steps_that_record(setup):
            return Measure(key, title, State.OFF, RECORDS_GRAPH, tuple(recording)[:4])
    if setup.framework in _BY_FRAMEWORK:
        return Measure(key, title, State.ON, f"{setup.framework} evaluates without a graph", setup.where())
    graph: list[Place] = []
    free: list[Place] = []

    def runs(module: Module, node: ast.AST) -> bool:
        return setup.runs(module, node).truth is not False

    for function, module in setup.live.functions.items():
        trains = module.file.context.trains(function)
        if trains or not (_EVAL_NAME.search(function.name) or _is_part_of_one(setup, function, module)):
            for call in module.once(_in_evaluation_loops, function):
                if not runs(module, call):
                    continue
                off = module.file.context.grad_off(call) or _ends_the_graph(call, setup)
                (free if off else graph).append(setup.place(module, call))
            continue
        if module.file.context.turns_grad_off(function) and not _passes_outside(module, function):
            if runs(module, function.body[-1]):  # behind what may return
                free.append(_turned_off_at(setup, module, function))
            continue
        forward = module.once(_forward_in_loop, function)
        if forward is None or _ends_the_graph(forward, setup) or not runs(module, forward):
            continue
        off = module.file.context.grad_off(forward) or _called_without_graph(setup, function, module)
        (free if off else graph).append(setup.place(module, forward if not off else function))
    in_steps = False
    for module, block in _grad_off_blocks(setup):
        if not runs(module, block):
            continue
        if _is_of_every_step(module, block) or _is_in_forward(module, block):
            in_steps = True
        else:
            free.append(setup.place(module, block))
    if not graph and not free:
        for off, place in _by_helpers(setup):
            (free if off else graph).append(place)
    if not graph and not free:
        free += [setup.place(*pair) for pair in _by_pipelines(setup) if runs(*pair)]
    if graph:
        return Measure(key, title, State.OFF, RECORDS_GRAPH, tuple(graph)[:4])
    if free:
        how = "under `no_grad` or `inference_mode`"
        if all(_is_volatile(setup, place) for place in free):
            how = "by `volatile`, as before torch 0.4"
        return Measure(key, title, State.ON, how, tuple(dict.fromkeys(free))[:4])
    if setup.blind_model:
        return Measure(key, title, State.UNKNOWN, f"no evaluation seen; {setup.blind_model}")
    if not in_steps and (switched := _switched_to_evaluation(setup)):
        detail = f"`{text_of(switched[0][1])}` is called; what runs then is not told apart from the steps"
        return Measure(key, title, State.UNKNOWN, detail, tuple(setup.place(*each) for each in switched)[:4])
    where = "beside the steps, parts of which run without a graph" if in_steps else "in the code that runs"
    return setup.not_applicable(
        key, title, f"no evaluation seen {where}" if in_steps else f"no evaluation {where}"
    )


def _is_volatile(setup: Setup, place: Place) -> bool:
    """Can nothing but `volatile=True` turn recording off there?"""
    file = setup.live.read[place.path].file if place.path in setup.live.read else None
    return file is not None and b"volatile" in file.data and _TURNS_OFF.search(file.text) is None


def _without_evaluation(setup: Setup) -> Place | None:
    """The first trainer, where no trainer is given data to evaluate on: `Trainer(model, args, train_dataset=data)`."""
    made = [
        (module, call)
        for module, call in setup.named(_TRAINER)
        if any(keyword.arg == "train_dataset" for keyword in call.keywords)
    ]
    others = [pair for pair in setup.calls("__init__") if text_of(pair[1].func).startswith("super(")]
    given = any(
        setup.unpacks(call) or setup.keyword(call, "eval_dataset", _EVAL_POSITION) is not None
        for _, call in made
    )
    return (
        None
        if not made or given or any("eval_dataset" in text_of(c) for _, c in others)
        else setup.place(*made[0])
    )


def _by_helpers(setup: Setup) -> Iterator[tuple[bool, Place]]:
    """Passes of the network in helpers that a loop of an evaluation calls, `features.append(extract(model, images))`: is recording off?

    Only where one of the two switches the network to evaluation.
    """
    for function, module in setup.live.functions.items():
        forward = next(filter(_is_forward, module.file.calls.calls_in(function)), None)
        if forward is None or module.file.context.trains(function):
            continue
        for other, call, _ in callers(setup.live, function, module):
            outer = other.file.index.function_of(call)
            evaluating = [] if outer is None else _evaluations_that_call(setup, outer, other)
            if (
                outer is None
                or next(other.file.index.loops_of(call), None) is None
                or other.file.context.trains(outer)
                or not (_switches_off(module, function) or _switches_off(other, outer))
                or not (_EVAL_NAME.search(outer.name) or evaluating)
                or setup.runs(other, call).truth is False
                or setup.runs(module, forward).truth is False
            ):
                continue
            off = (
                module.file.context.grad_off(forward)
                or other.file.context.grad_off(call)
                or _ends_the_graph(forward, setup)
                or _called_without_graph(setup, outer, other)
                or (bool(evaluating) and all(m.file.context.grad_off(c) for m, c in evaluating))
            )
            yield off, setup.place(module, forward)


def _by_pipelines(setup: Setup) -> Iterator[tuple[Module, ast.Call]]:
    """`pipeline(prompt)` of one of diffusers, whose call turns recording off."""
    if "diffusers" not in setup.packages:
        return
    for module in setup.live.read.values():
        for call in module.once(_pipeline_calls, module.file.tree):
            if setup.live.runs(module, call):
                yield module, call


def _pipeline_calls(module: Module, _: ast.Module) -> list[ast.Call]:
    """Those of a name that a pipeline of diffusers was bound to."""
    found = []
    for call in module.file.index.of_type(ast.Call):
        made = module.file.bindings.assigned(call.func)
        if isinstance(made, ast.Call) and _PIPELINE.search(qualified(module, made.func)):
            found.append(call)
    return found


def _evaluations_that_call(
    setup: Setup, function: FunctionNode, module: Module
) -> list[tuple[Module, ast.Call]]:
    """The calls of the function in evaluations, whatever else calls it."""
    return [
        (other, call)
        for other, call, _ in callers(setup.live, function, module)
        if (caller := _function_of(other, call)) is not None
        and other.file.context.is_eval_function(caller)
        and setup.runs(other, call).truth is not False
    ]


def _switches_off(module: Module, function: FunctionNode) -> bool:
    """Does the function call `model.eval()`?"""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "eval" and not call.args
        for call in module.file.calls.calls_in(function)
    )


def _steps_that_record(setup: Setup) -> list[Place]:
    """Passes in a `prediction_step` that replaces the one of transformers, the only place where its Trainer turns recording off."""
    return [
        setup.place(module, call)
        for method, module in setup.live.methods_named("prediction_step")
        if _is_of_a_trainer(setup, module, method) and setup.runs(module, method.body[0]).truth is not False
        for call in module.file.calls.calls_in(method)
        if (_is_forward(call) or text_of(call.func) == "self.compute_loss")
        and not module.file.context.grad_off(call)
        and not _ends_the_graph(call, setup)
        and setup.runs(module, call).truth is not False
    ]


def _is_of_a_trainer(setup: Setup, module: Module, method: FunctionNode) -> bool:
    return any(
        text_of(base).endswith("Trainer")
        for _, owner in lineage(setup.live, module, module.file.index.class_of(method))
        for base in owner.bases
    )


def _switched_to_evaluation(setup: Setup) -> list[tuple[Module, ast.Call]]:
    """`net.eval()` of a network that `net.train()` takes back: one function trains and evaluates, by a parameter."""

    def switches(name: str) -> dict[str, tuple[Module, ast.Call]]:
        return {
            text_of(call.func.value): (module, call)
            for module, call in setup.calls(name)
            if isinstance(call.func, ast.Attribute)
            and not call.args
            and setup.runs(module, call).truth is not False
        }

    trained = switches("train")
    return [site for receiver, site in switches("eval").items() if receiver in trained]


def _turned_off_at(setup: Setup, module: Module, function: FunctionNode) -> Place:
    """What turns recording off in a function: of several blocks one that runs, the one around a pass of the network first."""
    if any(_TURNS_OFF.search(text_of(decorator)) for decorator in function.decorator_list):
        return setup.place(module, function)
    ranked = sorted(
        module.once(_off_blocks, function),
        key=lambda block: (setup.runs(module, block).truth is False, not _passes(block), block.lineno),
    )
    return setup.place(module, ranked[0] if ranked else function)


def _passes_outside(module: Module, function: FunctionNode) -> bool:
    """Does a loop call the network, and no block that turns recording off: one around something else?"""
    forward = module.once(_forward_in_loop, function)
    blocks = module.once(_off_blocks, function)
    return (
        forward is not None
        and bool(blocks)
        and not module.file.context.grad_off(forward)
        and not any(map(_passes, blocks))
    )


def _off_blocks(module: Module, function: FunctionNode) -> list[ast.With]:
    """The blocks of a function that turn recording off."""
    return [
        node
        for node in module.file.index.of_type(ast.With)
        if module.file.index.function_of(node) is function
        and any(_TURNS_OFF.search(text_of(item.context_expr)) for item in node.items)
    ]


def _passes(block: ast.With) -> bool:
    """Is the network called in it?"""
    nodes = (node for statement in block.body for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and _is_forward(node) for node in nodes)


def _is_part_of_one(setup: Setup, function: FunctionNode, module: Module) -> bool:
    """Is the network called in it, for evaluations alone: `features_of(model, loader)`?"""
    return module.once(_forward_in_loop, function) is not None and holds_of_all_calls(
        function,
        module,
        lambda called, holder: ((other, call) for other, call, _ in callers(setup.live, called, holder)),
        _function_of,
        lambda other, call: (
            (caller := _function_of(other, call)) is not None and other.file.context.is_eval_function(caller)
        ),
    )


def _called_without_graph(setup: Setup, function: FunctionNode, module: Module) -> bool:
    """Do all calls of the function stand under `no_grad`, or in functions of which that holds?"""

    def calls(called: FunctionNode, _: Module) -> Iterator[tuple[Module, ast.Call]]:
        for other, node in setup.live.sites.get(called):
            call = other.file.index.parent(node)
            if isinstance(call, ast.Call) and setup.runs(other, call).truth is not False:
                yield other, call

    def is_off(other: Module, call: ast.Call) -> bool:
        return other.file.context.grad_off(call)

    return holds_of_all_calls(function, module, calls, _function_of, is_off)


def _function_of(module: Module, node: ast.AST) -> FunctionNode | None:
    return module.file.index.function_of(node)


def _forward_in_loop(module: Module, function: FunctionNode) -> ast.Call | None:
    """A call of the network in a loop of the function."""
    switched = any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "eval"
        for call in module.file.calls.calls_in(function)
    )
    for call in module.file.calls.calls_in(function):
        loop = next(module.file.index.loops_of(call), None) if switched else None
        if isinstance(loop, ast.For) and _takes(call, loop.target):
            return call
        if _is_forward(call) and any(isinstance(a, LOOPS) for a, _ in module.file.index.ancestors(call)):
            return call
    return None


def _in_evaluation_loops(module: Module, function: FunctionNode) -> list[ast.Call]:
    """Passes of the network in loops over evaluation data, in a function that does more than evaluate."""
    return [
        call
        for call in module.file.calls.calls_in(function)
        if _is_forward(call) and _evaluates(module, call)
    ]


def _evaluates(module: Module, call: ast.Call) -> bool:
    """Does a loop over evaluation data repeat it, inside of which nothing trains: not `for size in sizes_to_test`?"""
    for loop in module.file.index.loops_of(call):
        if module.file.context.step_mark(loop) is not None:
            return False
        if module.file.context.is_eval_loop(loop):
            return True
    return False


def _ends_the_graph(call: ast.Call, setup: Setup) -> bool:
    """Does the method turn recording off itself: `generate` of transformers, or one of the project?"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    named = [
        module.file.context.turns_grad_off(function)
        for module, function in setup.live.once(_of_modules).get(name, ())
    ]
    return any(named) or (name == "generate" and not named)


def _takes(call: ast.Call, target: ast.expr) -> bool:
    """Is the call of a method given the batch of the loop?"""
    names = {
        node.id
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and node.id not in ("i", "_", "idx")
    }
    own = (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    )
    return own and any(isinstance(a, ast.Name) and a.id in names for a in call.args)


def _runs_network(setup: Setup, call: ast.Call) -> bool:
    """Does a function of the repository of the called name hold a pass of the network: `self.run_epoch(validates=True)`?"""
    called = text_of(call.func).rpartition(".")[2]
    functions = setup.live.once(_by_name).get(called, ())
    return any(module.once(_holds_forward, function) for module, function in functions)


def _holds_forward(module: Module, function: FunctionNode) -> bool:
    return any(map(_is_forward, module.file.calls.calls_in(function)))


def _by_name(live: Live) -> dict[str, list[tuple[Module, FunctionNode]]]:
    """The functions that run."""
    table: dict[str, list[tuple[Module, FunctionNode]]] = {}
    for function, module in live.functions.items():
        table.setdefault(function.name, []).append((module, function))
    return table


def _of_modules(live: Live) -> dict[str, list[tuple[Module, FunctionNode]]]:
    """The functions of the modules that are read."""
    table: dict[str, list[tuple[Module, FunctionNode]]] = {}
    for module in live.read.values():
        for function in module.file.calls.functions:
            table.setdefault(function.name, []).append((module, function))
    return table


def _is_of_every_step(module: Module, block: ast.AST) -> bool:
    """Is it a part of each training step, as where a teacher or an encoder is asked: no evaluation?"""
    step = module.file.context.training_step(block) if isinstance(block, ast.With) else None
    if step is None or (isinstance(block, ast.With) and is_of_evaluating_phase(module, block)):
        return False
    return not step.full_batch and module.file.guards.rare(block, step.node) is None


def _is_in_forward(module: Module, block: ast.AST) -> bool:
    """Is it in the `forward` of a network, so a part of the steps: not where that asks whether it trains, and not of an `Evaluator`?"""
    for ancestor, _ in module.file.index.ancestors(block):
        if isinstance(ancestor, ast.If) and "training" in text_of(ancestor.test):
            return False
        if isinstance(ancestor, FUNCTIONS):
            owner = module.file.index.parent(ancestor)
            is_method = isinstance(owner, ast.ClassDef) and not _EVAL_NAME.search(owner.name.lower())
            return is_method and ancestor.name == "forward"
    return False


def _grad_off_blocks(setup: Setup) -> list[tuple[Module, ast.AST]]:
    """`with torch.no_grad():` blocks that hold a call of the network, and contexts that are chosen to be one."""
    found: list[tuple[Module, ast.AST]] = [
        (module, node)  # `context = nullcontext if training else torch.no_grad`
        for module in setup.live.read.values()
        for node in module.file.index.attributes_named("no_grad", "inference_mode")
        if isinstance(module.file.index.parent(node), ast.IfExp) and setup.live.runs(module, node)
    ]
    for module, call in setup.calls("no_grad", "inference_mode", "set_grad_enabled"):
        parent = module.file.index.parent(call)
        block = module.file.index.parent(parent) if isinstance(parent, ast.withitem) else None
        if isinstance(block, ast.With) and (
            _is_beside_evaluation(module, block)
            or any(
                isinstance(node, ast.Call)
                and (
                    _is_forward(node)
                    or _runs_network(setup, node)
                    or text_of(node.func).endswith(".eval")
                    or _SHOWS.match(text_of(node.func).rpartition(".")[2])
                )
                for statement in block.body
                for node in ast.walk(statement)
            )
        ):
            found.append((module, block))
    return found


def _is_beside_evaluation(module: Module, block: ast.With) -> bool:
    """Does it hold a loop over evaluation data, or stand in one, whatever the network is called there?"""
    held = (node for statement in block.body for node in ast.walk(statement) if isinstance(node, ast.For))
    loops = (*held, *module.file.index.loops_of(block))
    return any(module.file.context.is_eval_loop(loop) for loop in loops)
