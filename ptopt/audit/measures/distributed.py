"""How the training runs on several devices."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.conditions import LONGEST, of_environment
from ptopt.audit.engines import deepspeed_made
from ptopt.audit.foreign import FOREIGN
from ptopt.audit.known import Value
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.index import FUNCTIONS, is_main_test

_STRATEGIES = {
    "DistributedDataParallel": "DDP", "FullyShardedDataParallel": "FSDP", "fully_shard": "FSDP2", "DataParallel": "DataParallel",
    "DataParallelPlus": "DataParallel", "parallel_apply": "DataParallel", "data_parallel": "DataParallel", "convert_sync_batchnorm": "",
}  # fmt: skip

_SHORT = {"DDP": "DDP", "FSDP": "FSDP"}
DATA_PARALLEL = "`DataParallel`"  # how a row begins that says that it is used
_STARTS_MORE = (
    "spawn",
    "start_processes",
    "notebook_launcher",
    "Process",
    "Popen",
    "elastic_launch",
    "launch_agent",
)
_LISTED = 4  # commands
_BY_LAUNCHER = " when several processes are started"  # how a row ends that the launcher decides
_BY_DEFAULT = re.compile(r"default of `--?\w*(multi|parallel|distributed)")
_REDUCES = re.compile(r"^(all_?reduce\w*|(average|sync|reduce)_gradients)$")
_SEVERAL = re.compile(
    r"^(?!is_|get_)\w*(distrib(uted|_|$)|parallel|ddp)", re.I
)  # how a framework is asked for it
_MADE_STRATEGY = re.compile(r"`(\w+\.)*(DDP|FSDP|DeepSpeed|ModelParallel)\w*(Strategy|Plugin)\(")
_GRADIENTS = re.compile(r"\.grad\b|\bgrads?\b|gradient")


def strategy(setup: Setup) -> Measure:
    key, title = "distributed", "Distributed training"
    if setup.framework in ("transformers", "TRL"):
        deepspeed = TrainerArguments(setup).of("deepspeed")
        detail = "DDP by transformers where several processes are started"
        if deepspeed.truth:
            detail = f"DeepSpeed ({deepspeed.note or deepspeed.value})"
        elif deepspeed.truth is False and (alone := _started_alone(setup)):
            return Measure(key, title, State.OFF, f"{_of_commands(alone)}; {detail}", alone)
        places = (deepspeed.place,) if deepspeed.place is not None and deepspeed.truth else setup.where()
        return Measure(key, title, State.ON, detail, places)
    if setup.framework == "Lightning":
        value = lightning_argument(setup, "strategy", "auto")
        older = lightning_argument(setup, "accelerator", "auto")
        if value.known and value.value == "auto" and older.known and older.value in ("ddp", "dp", "ddp2"):
            value = older
        places = () if value.place is None else (value.place,)
        if (single := _one_device(setup)) is not None:
            return Measure(key, title, State.OFF, *single)
        if not value.known and not value.choices:
            state = State.ON if _MADE_STRATEGY.match(value.note) else State.UNKNOWN
            detail = f"{value.note} where it has several devices" if state is State.ON else value.note
            return Measure(key, title, state, detail, places)
        if not value.known:
            shown = next(
                (f"`strategy` is {c}" for c in value.choices if c not in ("auto", None)), "DDP by Lightning"
            )
            return Measure(key, title, State.ON, f"{shown} where it has several devices", places)
        detail = (
            "DDP by Lightning where it has several devices"
            if value.value in ("auto", None)
            else f"`strategy` is {value.value}"
        )
        return Measure(key, title, State.ON, detail, places)
    if setup.framework in ("Accelerate", "Fabric"):
        detail = f"by {setup.framework} where several processes are started"
        if setup.framework == "Accelerate" and (alone := _started_alone(setup)):
            return Measure(key, title, State.OFF, f"{_of_commands(alone)}; {detail}", alone)
        return Measure(key, title, State.ON, detail, setup.where())
    found = list(_wrappers(setup))
    real = [c for c in found if c.detail.partition(",")[0] != "DataParallel"]
    if setup.framework in ("DeepSpeed", "Colossal-AI"):
        made = tuple(setup.place(*pair) for pair in deepspeed_made(setup.live))[:4]
        return Measure(key, title, State.ON, setup.framework, made or setup.where())
    live = [c for c in real if c.value.truth is not False]
    if live:
        row = setup.decide(key, title, live, "", launcher=True)
        stated = _stated(setup, row.evidence[0]) if row.detail.endswith(_BY_LAUNCHER) else None
        if stated is None or stated.place is None:
            return row
        said = f"{row.detail.removesuffix(_BY_LAUNCHER)} ({stated.note})"
        return replace(
            row,
            detail=said,
            evidence=tuple(dict.fromkeys((row.evidence[0], stated.place, *row.evidence[2:]))),
        )
    parallel = [c for c in found if c not in real and c.value.truth is not False]
    if parallel or (found and not real):
        chosen = next((c for c in found if c.value.truth is not False), found[0])
        asked = chosen.value.truth is None or (
            chosen.value.truth is False and of_environment(chosen.value.note)
        )
        if asked and _BY_DEFAULT.match(chosen.value.note):
            detail = f"one process on one device, {chosen.value.note}"
            return Measure(key, title, State.OFF, detail, (chosen.place,))
        return _one_process(setup, chosen)
    by_hand = [] if found else list(_averaged_by_hand(setup))
    if by_hand:
        return setup.decide(key, title, by_hand, "", launcher=True)
    if setup.framework in FOREIGN and not found:
        starts = [site for site in setup.named(_SEVERAL) if setup.runs(*site).truth is not False]
        if starts:
            detail = f"`{text_of(starts[0][1].func)[:60]}` decides"
            return Measure(key, title, State.UNKNOWN, detail, (setup.place(*starts[0]),))
        if alone := _started_alone(setup):
            return Measure(key, title, State.OFF, _of_commands(alone), alone)
    return setup.decide(key, title, found, "one process on one device", blind=setup.blind)


def _one_device(setup: Setup) -> tuple[str, tuple[Place, ...]] | None:
    """`Trainer(gpus=1)`: one device, whatever the machine has; None of others."""
    nodes = lightning_argument(setup, "num_nodes", 1)
    if not nodes.known or nodes.value != 1:
        return None
    for name in ("devices", "gpus"):
        value = lightning_argument(setup, name, None)
        if value.known and value.value in (1, "1") and value.value is not True:
            note = f" ({value.note})" if value.note else ""
            return f"one device, `{name}` is 1{note}", () if value.place is None else (value.place,)
    return None


def _stated(setup: Setup, place: Place) -> Value | None:
    """The flag that the wrapper at a place stands under, where commands or configurations switch it on: then nobody counts processes."""
    for module, call in setup.calls(*_STRATEGIES, *_SHORT):
        if setup.place(module, call) != place:
            continue
        for ancestor, child in module.file.index.ancestors(call):
            if isinstance(ancestor, FUNCTIONS):
                break
            if isinstance(ancestor, ast.If) and child in ancestor.body:
                if not isinstance(ancestor.test, ast.Attribute):
                    return None
                value = setup.value(module, ancestor.test)
                is_on = value.known and value.value is True and value.note and not value.environment
                return value if is_on and not value.note.startswith("default of") else None
    return None


def _started_alone(setup: Setup) -> tuple[Place, ...]:
    """The commands of the repository that train, where each of them starts one process, and so does the script."""
    commands = [launch for launch in setup.launches if not launch.evaluates]
    if not all(launch.alone for launch in commands) or setup.calls(*_STARTS_MORE):
        return ()
    return tuple(dict.fromkeys(launch.place for launch in commands))[:_LISTED]


def _of_commands(places: tuple[Place, ...]) -> str:
    which = (
        "the one command found that starts it" if len(places) == 1 else "each command found that starts it"
    )
    return f"one process by {which}"


def _one_process(setup: Setup, wrapper: Candidate) -> Measure:
    """The row of `DataParallel`: with the condition that it stands under, and what that is by default."""
    key, title, value = "distributed", "Distributed training", wrapper.value
    test, asked = next(
        (guard for pair in _calls_at(setup, wrapper.place) for guard in _guards(setup, *pair)), ("", value)
    )
    shown = f"{DATA_PARALLEL} if `{test}`" if test else DATA_PARALLEL
    if value.truth is None and asked.truth is False:
        value = asked
    by_default = value.known and value.note and (test or not value.truth)
    note = f", {value.note}" if by_default else ""
    places = (wrapper.place, *([value.place] if note and value.place is not None else []))
    if value.truth is False:
        return Measure(
            key,
            title,
            State.OFF,
            f"one process on one device{note}; {shown}" if test else f"one process on one device{note}",
            places,
        )
    return Measure(key, title, State.OFF, f"{shown}{note}: one process drives all GPUs", places)


def _calls_at(setup: Setup, place: Place) -> Iterator[tuple[Module, ast.Call]]:
    names = (name for name, label in _STRATEGIES.items() if label == "DataParallel")
    return (pair for pair in setup.calls(*names) if setup.place(*pair) == place)


def _guards(setup: Setup, module: Module, call: ast.Call) -> Iterator[tuple[str, Value]]:
    """The conditions around a call in its function that not every run meets, and what they come to."""
    for ancestor, child in module.file.index.ancestors(call):
        if isinstance(ancestor, FUNCTIONS):
            return
        if isinstance(ancestor, (ast.If, ast.IfExp)) and _is_met(ancestor, child):
            text, value = text_of(ancestor.test), setup.value(module, ancestor.test)
            counts = isinstance(ancestor.test, ast.Compare) and "`--" in value.note  # not: is there a GPU
            if (
                (value.truth is not True or counts)
                and not is_main_test(ancestor.test)
                and len(text) <= LONGEST
            ):
                yield text, value


def _is_met(guard: ast.If | ast.IfExp, child: ast.AST) -> bool:
    return child in guard.body if isinstance(guard, ast.If) else child is guard.body


def _wrappers(setup: Setup) -> Iterator[Candidate]:
    for module, call in setup.calls(*_STRATEGIES, *_SHORT):
        name = setup.qualified(module, call.func)
        last = name.rpartition(".")[2]
        label = _STRATEGIES.get(last, _SHORT.get(last, last))
        if not label or _only_loads(module, call):
            continue
        if label == "DDP" and name.startswith("apex."):  # it has none of the arguments of that of torch
            label = "`DistributedDataParallel` of apex"
        yield setup.site(module, call, f"{label}{_details(setup, module, call) if label == 'DDP' else ''}")
    for module in setup.live.read.values():
        for call, label in module.once(_chosen_wrappers, module.file.tree):
            if setup.live.runs(module, call):
                yield setup.site(module, call, label)
    for cls in setup.live.classes:
        bases = [text_of(base).rpartition(".")[2] for base in cls.bases]
        label = next((_STRATEGIES[b] for b in bases if _STRATEGIES.get(b)), "")
        for module, call in setup.calls(cls.name) if label else ():
            yield setup.site(module, call, label)
    for module, call in setup.calls("initialize"):
        if setup.qualified(module, call.func).startswith("deepspeed"):
            yield setup.site(module, call, "DeepSpeed")


def _chosen_wrappers(module: Module, _: ast.Module) -> list[tuple[ast.Call, str]]:
    """`(DDP if dist.is_initialized() else Plain)(net)`"""
    found = []
    for call in module.file.index.of_type(ast.Call):
        if isinstance(call.func, ast.IfExp):
            last = text_of(call.func.body).rpartition(".")[2]
            label = _STRATEGIES.get(last) or _SHORT.get(last)
            found += [(call, label)] if label else []
    return found


def _only_loads(module: Module, call: ast.Call) -> bool:
    """`wrapped = DataParallel(net)`, which is asked for nothing but to load a state that has the names of one?"""
    assign, function = module.file.index.parent(call), module.file.index.function_of(call)
    target = assign.targets[0] if isinstance(assign, ast.Assign) else None
    if function is None or not isinstance(target, ast.Name):
        return False
    reads = module.file.reads_of(function, target.id)
    holders = [module.file.index.parent(read) for read in reads]
    return bool(holders) and all(
        isinstance(h, ast.Attribute) and h.attr == "load_state_dict" for h in holders
    )


def _averaged_by_hand(setup: Setup) -> Iterator[Candidate]:
    """`dist.all_reduce(p.grad)` for each parameter, between the backward pass and the step."""
    for module, call in setup.named(_REDUCES):
        function = module.file.index.function_of(call)
        text = text_of(call if function is None else function)
        if _GRADIENTS.search(text) and re.search(r"dist|hvd|comm|gradients", text_of(call.func)):
            yield setup.site(module, call, "gradients are averaged by `all_reduce`")


def _details(setup: Setup, module: Module, call: ast.Call) -> str:
    parts = []
    for name, shown in (
        ("static_graph", "static graph"),
        ("gradient_as_bucket_view", "gradients as bucket views"),
        ("find_unused_parameters", "looks for unused parameters"),
    ):
        given = setup.keyword(call, name)
        if given is not None and setup.value(module, given).truth:
            parts.append(shown)
    return "".join(f", {part}" for part in parts)


def uses_ddp(measure: Measure) -> bool:
    return measure.state is State.ON and bool(re.match(r"DDP", measure.detail))
