"""What surrounds the steps: evaluation without a graph, checkpoints, monitoring."""

from __future__ import annotations

import ast
import re

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.modules import Module
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.index import LOOPS, FunctionNode

NOTHING_SAVED = "nothing is saved"
_BY_FRAMEWORK = ("transformers", "TRL", "Lightning")
_EVAL_NAME = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|vali|val|test|predict|infer)(_|$|\d)", re.I
)
_SAVES = re.compile(
    r"^(save_checkpoint|save_state|save_pretrained|save_model|save_weights|save_ckpt|save_training_state)$"
)
_SAVES_BY_NAME = re.compile(
    r"^_?(save|snapshot|dump|write)_?\w*(checkpoint|ckpt|snapshot|model|state|weights|params|networks?|adapter|lora)",
    re.I,
)
_STATE = re.compile(r"checkpoint|ckpt|snapshot|state|params|model|weights", re.I)
_OF_NETWORK = re.compile(
    r"state|model|net|weight|param|optim|checkpoint|ckpt|module|encoder|decoder|generator|discriminator|ema|head|backbone|scheduler|"
    r"prompt|embed|lora|adapter|policy|critic|actor|agent|vae|\bgen|\bdis|\bG\b|\bD\b",
    re.I,
)
_BETTER = re.compile(r"best|improve", re.I)
_ASYNC = re.compile(r"^(async_save|AsyncCheckpointer|AsyncCheckpointIO)$")
_MONITORS = {
    "wandb": "Weights & Biases", "tensorboard": "TensorBoard", "tensorboardX": "TensorBoard", "tensorboard_logger": "TensorBoard",
    "mlflow": "MLflow", "neptune": "Neptune", "comet_ml": "Comet", "aim": "Aim", "swanlab": "SwanLab", "clearml": "ClearML",
    "visdom": "Visdom",
}  # fmt: skip
_FORWARD = re.compile(
    r"(^|\.)(\w*model|net|network|generator|module|encoder|policy|unet|backbone|classifier)\w*"
    r"(\.module)?(\.(forward|infer|generate|sample|predict|encode|decode|loss))?\(",
    re.I,
)


_SHOWS = re.compile(
    r"(val|validate|validation|test|evaluate|render|sample|generate|infer|inference|predict)(_|$)"
)
_NO_FORWARD = re.compile(
    r"param|state|config|name|path|weight|dict|load|save|size|count|summary|info|init|build|create|get_|make|set_|update|print|to_model",
    re.I,
)


def _is_forward(call: ast.Call) -> bool:
    """Does the name of what is called say that it is the network?"""
    text = ast.unparse(call.func)
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
    if setup.framework in _BY_FRAMEWORK:
        return Measure(key, title, State.ON, f"{setup.framework} evaluates without a graph", setup.where())
    graph: list[Place] = []
    free: list[Place] = []
    for function, module in setup.live.functions.items():
        if not _EVAL_NAME.search(function.name) or module.file.context.trains(function):
            for call in _in_evaluation_loops(module, function):
                off = module.file.context.grad_off(call) or _ends_the_graph(call, setup)
                (free if off else graph).append(setup.place(module, call))
            continue
        if module.file.context.turns_grad_off(function):
            free.append(setup.place(module, function))
            continue
        forward = _forward_in_loop(module, function)
        if forward is None or _ends_the_graph(forward, setup):
            continue
        off = module.file.context.grad_off(forward) or _called_without_graph(setup, function)
        (free if off else graph).append(setup.place(module, forward if not off else function))
    for module, block in _grad_off_blocks(setup):
        free.append(setup.place(module, block))
    if graph:
        return Measure(key, title, State.OFF, "an evaluation records the graph", tuple(graph)[:4])
    if free:
        return Measure(key, title, State.ON, "under `no_grad` or `inference_mode`", tuple(free)[:4])
    if setup.blind_model:
        return Measure(key, title, State.UNKNOWN, f"no evaluation seen; {setup.blind_model}")
    return setup.not_applicable(key, title, "no evaluation in the code that runs")


def _called_without_graph(setup: Setup, function: FunctionNode) -> bool:
    """Do all calls of the function stand under `no_grad`?"""
    calls = [
        (other, call)
        for other, node in setup.live.sites.get(function, [])
        if isinstance(call := other.file.index.parent(node), ast.Call)
        and setup.runs(other, call).truth is not False
    ]
    return bool(calls) and all(other.file.context.grad_off(call) for other, call in calls)


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
        if _is_forward(call)
        and any(module.file.context.is_eval_loop(loop) for loop in module.file.index.loops_of(call))
    ]


def _ends_the_graph(call: ast.Call, setup: Setup) -> bool:
    """Does the method turn recording off itself: `generate` of transformers, or one of the project?"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    named = [
        module.file.context.turns_grad_off(function)
        for module in setup.live.read.values()
        for function in module.file.calls.functions
        if function.name == name
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


def _grad_off_blocks(setup: Setup) -> list[tuple[Module, ast.AST]]:
    """`with torch.no_grad():` blocks that hold a call of the network."""
    found: list[tuple[Module, ast.AST]] = []
    for module, call in setup.calls("no_grad", "inference_mode"):
        parent = module.file.index.parent(call)
        block = module.file.index.parent(parent) if isinstance(parent, ast.withitem) else None
        if isinstance(block, ast.With) and any(
            isinstance(node, ast.Call)
            and (
                _is_forward(node)
                or ast.unparse(node.func).endswith(".eval")
                or _SHOWS.match(ast.unparse(node.func).rpartition(".")[2])
            )
            for statement in block.body
            for node in ast.walk(statement)
        ):
            found.append((module, block))
    return found


def saving(setup: Setup) -> Measure:
    key, title = "saving", "Checkpoints"
    if setup.framework in ("transformers", "TRL"):
        arguments = TrainerArguments(setup)
        strategy, steps = arguments.of("save_strategy"), arguments.of("save_steps")
        if strategy.known and str(strategy.value) == "no":
            return Measure(key, title, State.OFF, "`save_strategy` is no", _place(strategy.place))
        detail = "by transformers, synchronous"
        if steps.known and str(strategy.value) != "epoch":
            detail = f"every {steps.value} steps, synchronous"
        elif strategy.known and strategy.value == "epoch":
            detail = "each epoch, synchronous"
        return Measure(
            key,
            title,
            State.ON,
            detail,
            _place(steps.place if steps.known else strategy.place) or setup.where(),
        )
    asynchronous = setup.named(_ASYNC)
    every = [
        (module, call)
        for module, call in [*setup.calls("save"), *setup.named(_SAVES)]
        if _saves_state(setup, module, call)
    ]
    if not any(setup.runs(*pair).truth for pair in every):
        every += _other_saves(setup)
    saves = [pair for pair in every if setup.runs(*pair).truth is not False]
    if asynchronous:
        return setup.decide(key, title, [setup.site(m, c, "asynchronous") for m, c in asynchronous], "")
    if setup.framework == "Lightning":
        return Measure(key, title, State.ON, "by Lightning, synchronous", setup.where())
    if saves:
        best = min(saves, key=lambda pair: (not _in_loop(*pair), _only_the_best(*pair)))
        if setup.runs(*best).differs and not any(setup.runs(*pair).truth for pair in saves):
            return setup.decide(key, title, [setup.site(*best, "saving")], "")
        return Measure(
            key, title, State.ON, f"{_how_often(setup, *best)}, synchronous", (setup.place(*best),)
        )
    if every:
        return setup.decide(key, title, [setup.site(m, c, "saving") for m, c in every[:4]], "")
    if setup.blind:
        return Measure(key, title, State.UNKNOWN, f"not seen; {setup.blind}")
    return Measure(key, title, State.OFF, NOTHING_SAVED, setup.where())


def _other_saves(setup: Setup) -> list[tuple[Module, ast.Call]]:
    """Calls that say of themselves that they save a state, of functions that are not read; and states that are pickled."""
    found = [pair for pair in setup.named(_SAVES_BY_NAME) if setup.is_external(*_called(pair))]
    for module, call in setup.calls("dump", "save_file", "savez"):
        function = module.file.index.function_of(call)
        name = "" if function is None else function.name
        if re.search(r"pickle|joblib|safetensors|^save_file|dill", setup.qualified(module, call.func)) and (
            _STATE.search(name) or _STATE.search(" ".join(ast.unparse(a) for a in call.args))
        ):
            found.append((module, call))
    return found


def _called(pair: tuple[Module, ast.Call]) -> tuple[Module, ast.expr]:
    return pair[0], pair[1].func


def _place(place: Place | None) -> tuple[Place, ...]:
    return () if place is None else (place,)


def _saves_state(setup: Setup, module: Module, call: ast.Call) -> bool:
    name = setup.qualified(module, call.func)
    if name in ("torch.save", "xm.save") or name.endswith(
        (".torch.save", "fabric.save", "accelerator.save", "accelerate.save")
    ):
        return not _is_no_state(module, call)
    last = name.rpartition(".")[2]
    if last == "save" and isinstance(call.func, ast.Attribute):
        return "checkpoint" in ast.unparse(call.func.value).lower()
    return bool(_SAVES.match(last)) and setup.is_external(module, call.func) and last != "save_model"


def _is_no_state(module: Module, call: ast.Call) -> bool:
    """Is what is saved a table of accuracies, texts or images, without a key or value that names a network or an optimizer?"""
    saved: ast.expr | None = call.args[0] if call.args else None
    if isinstance(saved, ast.Name):
        binding = module.file.bindings.last_before(saved)
        saved = binding.value if binding is not None and binding.kind == "assign" else None
    if isinstance(saved, ast.Dict):
        if any(not isinstance(key, ast.Constant) for key in saved.keys):
            return False
    elif not (isinstance(saved, ast.Call) and ast.unparse(saved.func) == "dict" and not saved.args):
        return False
    elif any(keyword.arg is None for keyword in saved.keywords):
        return False
    return not _OF_NETWORK.search(ast.unparse(saved))


def _in_loop(module: Module, call: ast.AST) -> bool:
    return next(module.file.index.loops_of(call), None) is not None


def _only_the_best(module: Module, call: ast.AST) -> bool:
    """Is it saved only when the evaluation is better than before?"""
    return any(
        isinstance(ancestor, ast.If)
        and child in ancestor.body
        and _BETTER.search(ast.unparse(ancestor.test)) is not None
        for ancestor, child in module.file.index.ancestors(call)
    )


def _how_often(setup: Setup, module: Module, call: ast.Call, depth: int = 0) -> str:
    """The condition and the loop around a save, also those around the function that saves."""
    for ancestor, child in module.file.index.ancestors(call):
        if isinstance(ancestor, ast.If) and child in ancestor.body:
            for node in ast.walk(ancestor.test):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                    value = setup.value(module, node.right)
                    shown = (
                        f"{value.value} ({value.note})"
                        if value.known and value.note
                        else ast.unparse(node.right)
                    )
                    better = " where it is the best so far" if _only_the_best(module, call) else ""
                    return f"every {shown} of `{ast.unparse(node.left)[:40]}`{better}"
        if isinstance(ancestor, LOOPS):
            text = ast.unparse(ancestor.target) if not isinstance(ancestor, ast.While) else ""
            return "each epoch" if "epoch" in text else "in a loop"
    function = module.file.index.function_of(call)
    if function is not None and depth < 3:
        sites = sorted(
            setup.live.sites.get(function, []), key=lambda site: (not _in_loop(*site), _only_the_best(*site))
        )
        for other, node in sites[:3]:
            parent = other.file.index.parent(node)
            if isinstance(parent, ast.Call):
                return _how_often(setup, other, parent, depth + 1)
    return "as often as its function is called"


def monitoring(setup: Setup) -> Measure:
    key, title = "monitoring", "Monitoring and profiling"
    if setup.framework == "Lightning" and setup.configured.is_composed:
        chosen = [t for t in setup.configured.targets if str(t.value).endswith("Logger")]
        if chosen:
            shown = ", ".join(str(t.value).rpartition(".")[2] for t in chosen)
            return Measure(key, title, State.ON, shown, tuple(t.place for t in chosen)[:4])
        return Measure(key, title, State.OFF, "no logger is chosen by default", setup.where())
    uses = _uses_of_monitors(setup)
    names = sorted(
        {name for name, used in uses.items() if any(c.value.truth is not False for c in used) or not used}
    )
    profilers = [
        (module, call)
        for module, call in setup.calls("profile", "profiler")
        if setup.qualified(module, call.func).startswith("torch.profiler")
        and setup.runs(module, call).truth is not False
    ]
    if profilers:
        names.append("torch.profiler")
    places = [c.place for used in uses.values() for c in used if c.value.truth is not False]
    places += [setup.place(m, c) for m, c in profilers]
    if names:
        sure = [c for used in uses.values() for c in used if c.value.truth is not None]
        undecided = [
            c for used in uses.values() for c in used if c.value.truth is None and c.value.choices == ()
        ]
        if undecided and not sure and not profilers:
            return setup.decide(key, title, undecided[:4], "")
        return Measure(key, title, State.ON, ", ".join(names), tuple(places)[:4] or setup.where())
    if uses:
        return setup.decide(key, title, [c for used in uses.values() for c in used][:4], "")
    if setup.framework == "Lightning":
        return Measure(key, title, State.ON, "the logger of Lightning", setup.where())
    if setup.blind:
        return Measure(key, title, State.UNKNOWN, f"not seen; {setup.blind}", setup.where())
    if setup.framework in ("transformers", "TRL"):
        value = TrainerArguments(setup).of("report_to")
        if value.known:
            off = value.value in ("none", None, ())
            shown = f"`report_to` is {value.value}"
            return Measure(key, title, State.OFF if off else State.ON, shown, _place(value.place))
    if setup.framework in _BY_FRAMEWORK:
        return Measure(
            key, title, State.UNKNOWN, f"{setup.framework} reports to what is installed", setup.where()
        )
    if setup.framework in ("Accelerate",) and setup.calls("init_trackers"):
        return Measure(
            key, title, State.ON, "trackers of Accelerate", (setup.place(*setup.calls("init_trackers")[0]),)
        )
    return Measure(key, title, State.OFF, "no experiment tracker and no profiler", setup.where())


def _uses_of_monitors(setup: Setup) -> dict[str, list[Candidate]]:
    """Tracker -> the places where it is started; none where it is only imported."""
    uses: dict[str, list[Candidate]] = {_MONITORS[p]: [] for p in sorted(setup.packages) if p in _MONITORS}
    for module, call in setup.calls("SummaryWriter"):
        uses.setdefault("TensorBoard", []).append(setup.site(module, call, "TensorBoard"))
    for module, call in setup.calls(
        "init", "start_run", "Experiment", "set_experiment", "Run", "log", "Logger"
    ):
        root = setup.qualified(module, call.func).partition(".")[0]
        if root in _MONITORS:
            uses.setdefault(_MONITORS[root], []).append(setup.site(module, call, _MONITORS[root]))
    for module in setup.live.read.values():
        for plain in module.file.index.of_type(ast.Import):
            name = _MONITORS.get(plain.names[0].name.partition(".")[0], "")
            within = module.file.index.function_of(plain) is not None
            if name in uses and not uses[name] and within and setup.live.runs(module, plain):
                uses[name].append(setup.site(module, plain, name))
    for name in [n for n, used in uses.items() if not used]:
        if (name == "TensorBoard" and not _is_used(setup)) or not _is_imported(setup, name):
            del uses[name]
    return uses


def _is_imported(setup: Setup, name: str) -> bool:
    """Does an import of the tracker run: at the top of a module, or in a function that is called?"""
    for module in setup.live.read.values():
        for node in module.file.index.of_type(ast.Import, ast.ImportFrom):
            roots = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            named = any(_MONITORS.get(root.partition(".")[0]) == name for root in roots)
            if named and setup.live.runs(module, node):
                return True
    return False


def _is_used(setup: Setup) -> bool:
    """Is something of TensorBoard called that is not a writer of torch: `tensorboard_logger.log_value`?"""
    return any(
        setup.qualified(module, call.func).partition(".")[0]
        in ("tensorboard_logger", "tensorboardX", "tensorboard")
        for module, call in setup.live.calls
    )
