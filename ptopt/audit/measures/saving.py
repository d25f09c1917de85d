"""Checkpoints: whether the state of the training is saved, and how often."""

from __future__ import annotations

import ast
import re

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.calling import callers, lineage
from ptopt.audit.foreign import calls_of
from ptopt.audit.frequency import Frequencies, Frequency
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.bindings import is_self
from ptopt.source.index import FunctionNode

Site = tuple[Module, ast.Call]
_MOST_WAYS = 3
_DEEPEST = 3  # calls of calls
_COUNTS = re.compile(r"\blen\(|[<>]=? -?[01]`$|rank|world_size")  # whether there is something, and who saves
_COMPARES = re.compile(r"^`[^`]*[\w\])] [<>]=? ")
NOTHING_SAVED = "nothing is saved"
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
_NO_STATE = re.compile(r"metric|result|loss|score|reward|history|feature|predict|cache", re.I)
_SAVERS = re.compile(
    r"\.(WeightSave|SaveModelCallback|(Model|TrainEnd)?Checkpoint)$"
)  # of frameworks that are not read
_ASYNC = re.compile(r"^(async_save|AsyncCheckpointer|AsyncCheckpointIO)$")


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
    every = [pair for pair in every if not _leads_to(setup, pair, every)]
    if not any(setup.runs(*pair).truth for pair in every):
        every += _other_saves(setup, every)
    saves = [pair for pair in every if setup.runs(*pair).truth is not False]
    saves = [pair for pair in saves if not _is_of_another_trainer(setup, *pair)] or saves
    if asynchronous:
        return setup.decide(key, title, [setup.site(m, c, "asynchronous") for m, c in asynchronous], "")
    if setup.framework == "Lightning":
        return Measure(key, title, State.ON, "by Lightning, synchronous", setup.where())
    if saves:
        frequencies = Frequencies(setup)
        often = [(how, pair) for pair in saves for how in frequencies.ways(*pair)]
        # Where one is under an option that differs between commands, the others say what all commands do.
        how, best = min(
            often,
            key=lambda found: (_differs(setup, found[1]), found[0].rank, not setup.runs(*found[1]).truth),
        )
        if _differs(setup, best):
            return setup.decide(key, title, [setup.site(*best, "saving")], "")
        ways, places = _stages(setup, how, often) or _ways(setup, how, best, often)
        return Measure(key, title, State.ON, f"{'; '.join(ways)}, synchronous".removeprefix(", "), places)
    if every:
        return setup.decide(key, title, [setup.site(m, c, "saving") for m, c in every[:4]], "")
    by_framework = [
        setup.site(module, call, f"`{name.rpartition('.')[2]}` of {setup.framework}")
        for module, call, name in calls_of(setup.live, setup.framework)
        if _SAVERS.search(name)
    ]
    if by_framework:
        return setup.decide(key, title, by_framework, "", blind=setup.blind)
    if setup.blind:
        return Measure(key, title, State.UNKNOWN, f"not seen; {setup.blind}")
    return Measure(key, title, State.OFF, NOTHING_SAVED, setup.where())


def _ways(
    setup: Setup, first: Frequency, best: Site, often: list[tuple[Frequency, Site]]
) -> tuple[list[str], tuple[Place, ...]]:
    """In words how the run saves, the most frequent way first, each with its place: also what is saved beside the periodic state."""
    ways = {first.text: setup.place(*best)} if first.text else {}
    for how, pair in sorted(often, key=lambda found: found[0].rank):
        if ways and _says_when(how) and not _differs(setup, pair):
            ways.setdefault(how.text, setup.place(*pair))
    shown = list(ways)[:_MOST_WAYS]
    return shown, tuple(dict.fromkeys(ways[text] for text in shown)) or (setup.place(*best),)


def _stages(
    setup: Setup, first: Frequency, often: list[tuple[Frequency, Site]]
) -> tuple[list[str], tuple[Place, ...]] | None:
    """Of a run that trains in several functions, and saves in each of them once; None of others."""
    stages: dict[FunctionNode, tuple[str, Place]] = {}
    for how, (module, call) in often if first.text == "once" else ():
        function = module.file.index.function_of(call)
        if how.text == "once" and function is not None and module.file.context.trains(function):
            stages.setdefault(function, (f"`{function.name}`", setup.place(module, call)))
    if not 1 < len(stages) <= _MOST_WAYS:
        return None
    found = sorted(stages.values(), key=lambda stage: (stage[1].path, stage[1].line))
    named = [name for name, _ in found]
    return [f"once in each of {', '.join(named[:-1])} and {named[-1]}"], tuple(place for _, place in found)


def _differs(setup: Setup, pair: Site) -> bool:
    """Do commands or configurations say different things of whether it runs?"""
    runs = setup.runs(*pair)
    return runs.differs and runs.truth is None


def _says_when(how: Frequency) -> bool:
    """Is it a number of steps, a comparison of results, or of times: and no flag, which commands switch?"""
    if how.loop in ("", "once"):
        return False
    compares = any(_COMPARES.search(one) and not _COUNTS.search(one) for one in how.conditions)
    return how.best or bool(how.every) or bool(how.last) or bool(compares)


def _other_saves(setup: Setup, every: list[Site]) -> list[tuple[Module, ast.Call]]:
    """Calls that say of themselves that they save a state, of functions that are not read; and states that are pickled."""
    found = [
        pair
        for pair in setup.named(_SAVES_BY_NAME)
        if setup.is_external(*_called(pair)) and not _leads_to(setup, pair, every)
    ]
    for module, call in setup.calls("dump", "save_file", "savez"):
        function = module.file.index.function_of(call)
        name = "" if function is None else function.name
        if re.search(r"pickle|joblib|safetensors|^save_file|dill", setup.qualified(module, call.func)) and (
            _STATE.search(name) or _STATE.search(" ".join(text_of(a) for a in call.args))
        ):
            found.append((module, call))
    return found


def _is_of_another_trainer(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Does it stand in a class beside the one that trains: neither derives from the other, and both from a third?"""
    if setup.start is None:
        return False
    (at, start) = setup.start
    trains, saves = at.file.index.class_of(start), module.file.index.class_of(call)
    if trains is None or saves is None:
        return False
    own = [cls for _, cls in lineage(setup.live, at, trains)]
    others = [cls for _, cls in lineage(setup.live, module, saves)]
    return saves not in own and trains not in others and any(cls in own for cls in others)


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
        return "checkpoint" in text_of(call.func.value).lower()
    return bool(_SAVES.match(last)) and setup.is_external(module, call.func) and last != "save_model"


def _leads_to(setup: Setup, pair: Site, saves: list[Site]) -> bool:
    """`trainer.save_checkpoint(epoch)`: does a method of the repository of that name, which it calls, hold one of the saves?"""
    module, call = pair
    saves = [save for save in saves if save[1] is not call]
    if not saves or setup.qualified(module, call.func).startswith("torch."):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    waiting = [
        (method, holder)
        for method, holder in (setup.live.methods_named(name) if name else ())
        if any(site is call for _, site, _ in callers(setup.live, method, holder))
    ]
    seen = {method for method, _ in waiting}
    held = {module.file.index.function_of(save) for module, save in saves}
    for _ in range(_DEEPEST):
        if seen & held:
            return True
        waiting = [
            (inner, holder)
            for method, holder in waiting
            for inner_call in holder.file.calls.calls_in(method)
            if isinstance(inner_call.func, ast.Attribute) and is_self(inner_call.func)
            for inner, holder in setup.live.methods_named(inner_call.func.attr)
            if inner not in seen
        ]
        seen |= {method for method, _ in waiting}
    return bool(seen & held)


def _is_no_state(module: Module, call: ast.Call) -> bool:
    """Is what is saved a table of accuracies, texts or images, without a key or value that names a network or an optimizer?"""
    saved: ast.expr | None = call.args[0] if call.args else None
    if isinstance(saved, ast.Name) and _NO_STATE.search(saved.id) and not _OF_NETWORK.search(saved.id):
        return True
    if isinstance(saved, ast.Attribute) and saved.attr == "eval":  # of the tables of pycocotools
        return True
    if isinstance(saved, ast.Name):
        binding = module.file.bindings.last_before(saved)
        saved = binding.value if binding is not None and binding.kind == "assign" else None
    if isinstance(saved, ast.Dict):
        if not saved.keys or any(not isinstance(key, ast.Constant) for key in saved.keys):
            return False  # what is put into it later counts
    elif not (isinstance(saved, ast.Call) and text_of(saved.func) == "dict" and not saved.args):
        return False
    elif not saved.keywords or any(keyword.arg is None for keyword in saved.keywords):
        return False
    return not _OF_NETWORK.search(text_of(saved))
