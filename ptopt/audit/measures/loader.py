"""The data loader of the training: workers, pinning, prefetching."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.calling import callers
from ptopt.audit.foreign import calls_of
from ptopt.audit.known import Value, agreed, position_of
from ptopt.audit.measures.endless import is_endless
from ptopt.audit.measures.itemstate import changes_between_epochs
from ptopt.audit.measures.loaders import (
    EVAL,
    LOADER,
    POSITIONS,
    TRAIN,
    Loader,
    about,
    of_libraries,
    training_loaders,
)
from ptopt.audit.measures.passes import single_pass
from ptopt.audit.measures.unpinned import Unpinned, unpinned
from ptopt.audit.modules import Module, text_of
from ptopt.audit.phases import IS_TRAINING
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State

_COUNTS_CPUS = re.compile(r"cpu_count|sched_getaffinity")
_FOREIGN = re.compile(r"^(nvidia|webdataset|ffcv|tensorflow_datasets)$")
_BATCH_POSITION = 1
_NAMED = re.compile(r"`-*(?:\w+\.)*([\w-]+)`")  # in a note that names an option or a key


def prefetchers(setup: Setup) -> list[Candidate]:
    """Loaders of timm for the training that copy each batch ahead of its step."""
    return [
        setup.site(each.module, each.call, "`PrefetchLoader` of timm copies with `non_blocking=True`", asked)
        for each in of_libraries(setup)
        if TRAIN.search(text := about(each.module, each.call)) or not EVAL.search(text)
        if (asked := _argument(setup, each, "use_prefetcher", True)).truth is not None
    ]


def _argument(setup: Setup, loader: Loader, name: str, default: Any) -> Value:
    position = {**POSITIONS, "batch_size": _BATCH_POSITION}.get(name)
    if loader.own or loader.library:
        position = None
    given = _in_training(setup.keyword(loader.call, name, position))
    place = setup.place(loader.module, loader.call)
    if loader.unread and given is None:
        return Value(False, note=f"{loader.unread} makes the loader, and is not read", place=place)
    default, whose = loader.default(setup, name, default)
    if given is not None:
        if _COUNTS_CPUS.search(text_of(given)):
            return Value(True, "by the number of CPUs", "", place)
        value = setup.value(loader.module, given)
        if not value.known:
            value = _of_training_calls(setup, loader, given) or value
        return replace(value, place=value.place or place)
    if setup.unpacks(loader.call):
        unpacked = setup.unpacked(loader.module, loader.call, name, Value(True, default, whose))
        if unpacked is not None and not unpacked.known and _COUNTS_CPUS.search(unpacked.note):
            return Value(True, "by the number of CPUs", "", place)
        if unpacked is not None:
            return replace(unpacked, place=unpacked.place or place)
        return Value(False, note=f"`**` in the call at {place}", place=place)
    if loader.own:
        return Value(False, note=f"`{text_of(loader.call.func)}` is a loader of the repository", place=place)
    return Value(True, default, whose, place)


def _of_training_calls(setup: Setup, loader: Loader, given: ast.expr) -> Value | None:
    """What those calls of a function that makes loaders give its parameter whose result is called a training's; None where none is."""
    function = loader.module.file.index.function_of(given)
    if function is None or not isinstance(given, ast.Name) or position_of(function, given.id) is None:
        return None

    def trains(module: Module, call: ast.Call) -> bool:
        statement = module.file.index.statement_of(call)
        named = " ".join(map(text_of, statement.targets)) if isinstance(statement, ast.Assign) else ""
        return TRAIN.search(named) is not None and EVAL.search(named) is None

    calls = [(other, call) for other, call, _ in callers(setup.live, function, loader.module)]
    if not any(trains(*pair) for pair in calls):
        return None
    return setup.evaluator.of_calls(function, given.id, loader.module, trains)


def _in_training(given: ast.expr | None) -> ast.expr | None:
    """Of `4 if is_train else 1` what the training has."""
    while isinstance(given, ast.IfExp):
        negated = isinstance(given.test, ast.UnaryOp) and isinstance(given.test.op, ast.Not)
        test = given.test.operand if isinstance(given.test, ast.UnaryOp) and negated else given.test
        if not IS_TRAINING.search(text_of(test)):
            break
        given = given.orelse if negated else given.body
    return given


_TRAINER_NAMES = {
    "num_workers": "dataloader_num_workers", "pin_memory": "dataloader_pin_memory",
    "persistent_workers": "dataloader_persistent_workers", "prefetch_factor": "dataloader_prefetch_factor",
}  # fmt: skip


def _setting(setup: Setup, name: str, default: Any) -> list[Value]:
    """The setting of each training loader; [] where there is no loader."""
    if setup.framework in ("transformers", "TRL"):
        return [TrainerArguments(setup).of(_TRAINER_NAMES[name])]
    found = [_argument(setup, loader, name, default) for loader in training_loaders(setup)]
    return found or _configured(setup, name, default) or _given_to_framework(setup, name)


def _given_to_framework(setup: Setup, name: str) -> list[Value]:
    """What calls of a framework that is not read state for the training loader that it makes; its defaults are not known."""
    stated = [
        (setup.value(module, given), setup.place(module, call), about(module, call))
        for module, call, _ in calls_of(setup.live, setup.framework)
        if (given := _in_training(setup.keyword(call, name))) is not None
        and setup.runs(module, call).truth is not False
    ]
    return [
        replace(value, place=value.place or place)
        for value, place, text in stated
        if TRAIN.search(text) or not EVAL.search(text)
    ]


def _configured(setup: Setup, name: str, default: Any) -> list[Value]:
    """The setting of loaders that a configuration makes: `_target_: torch.utils.data.DataLoader`"""
    values = []
    for target in setup.configured.targets if setup.configured.is_composed else ():
        last = str(target.value).rpartition(".")[2]
        if not LOADER.match(last) or EVAL.search(".".join(target.keys[:-1])):
            continue
        given = setup.configured.beside(target, name)
        absent = Value(True, default, "the default of `DataLoader`", target.place)
        values.append((agreed(given) if given else None) or absent)
    return values


def _decided(setup: Setup, key: str, title: str, values: list[Value], shown: str) -> Measure:
    if not values:
        return _without(setup, key, title)
    places = tuple(dict.fromkeys(v.place for v in values if v.place is not None))[:4]
    on = [v for v in values if v.truth]
    off = [v for v in values if v.truth is False]
    values = [v if v.truth is None else replace(v, known=True) for v in values]
    if off and not on and len(off) == len(values):
        detail = f"{shown} is {_shown(off[0])}{_note(off[0])}"
        return Measure(key, title, State.OFF, detail, places, lacking=off[0].lacking)
    if on and len(on) == len(values):
        return Measure(key, title, State.ON, f"{shown} is {_shown(on[0])}{_note(on[0])}", places)
    unknown = next((v for v in values if not v.known), None)
    if unknown is not None:
        return Measure(key, title, State.UNKNOWN, _not_known(shown, unknown), places)
    return Measure(key, title, State.OFF, f"{shown} is on for {len(on)} of {len(values)} loaders", places)


def _without(setup: Setup, key: str, title: str) -> Measure:
    foreign = min((p for p in setup.packages if _FOREIGN.search(p)), default="")  # a set has no order
    if foreign:
        return Measure(key, title, State.UNKNOWN, f"the data comes from `{foreign}`")
    if setup.blind_model:
        return Measure(key, title, State.UNKNOWN, f"no loader seen; {setup.blind_model}")
    return setup.not_applicable(key, title, "no `DataLoader` in the code that trains")


def _shown(value: Value) -> str:
    return " or ".join([*dict.fromkeys(map(str, value.choices))][:4]) if value.choices else str(value.value)


def _not_known(shown: str, value: Value) -> str:
    """Its note says why, but for one that only names it again."""
    if value.note != shown:
        return f"{shown}: {value.note}"
    if value.choices:
        return f"{shown} is {_shown(value)}; which of them was not found"
    return f"what {shown} is was not found"


def _note(value: Value) -> str:
    return f" ({value.note})" if value.note else ""


def has_batches_below(setup: Setup, items: int) -> bool:
    """Is the batch size of each training loader known, and smaller?"""
    sizes = [_argument(setup, loader, "batch_size", 1) for loader in training_loaders(setup)]
    return bool(sizes) and all(
        size.known and isinstance(size.value, int) and size.value < items for size in sizes
    )


def workers(setup: Setup) -> Measure:
    values = _setting(setup, "num_workers", 0)
    row = _decided(setup, "workers", "Loader workers", values, "`num_workers`")
    divided = _divided(setup, values) if row.state is State.ON else None
    if divided is None:
        return row
    place, text = divided
    return replace(row, detail=f"{row.detail}, before `{text}`", evidence=(*row.evidence[:3], place))


def _divided(setup: Setup, values: list[Value]) -> tuple[Place, str] | None:
    """Where the script divides the number that options or configurations give, `cfg.num_workers //= num_gpus`: by how much is not known."""
    names = {match[1].replace("-", "_") for v in values for match in _NAMED.finditer(v.note)}
    for module in setup.live.read.values():
        for step in module.file.index.of_type(ast.AugAssign):
            if (
                isinstance(step, ast.AugAssign)
                and isinstance(step.op, (ast.FloorDiv, ast.Div))
                and isinstance(step.target, ast.Attribute)
                and step.target.attr in names
                and setup.runs(module, step).truth is not False
            ):
                return setup.place(module, step), text_of(step)
    return None


def pin_memory(setup: Setup) -> Measure:
    values = _setting(setup, "pin_memory", False)
    row = _decided(setup, "pin_memory", "Pinned memory", values, "`pin_memory`")
    missed = setup.once(not_pinned) if row.state is State.ON else None
    if missed is None:
        return row
    state = State.OFF if missed.whole else State.ON
    return replace(
        row, state=state, detail=f"{row.detail}; {missed.said}", evidence=(*row.evidence[:3], missed.place)
    )


def not_pinned(setup: Setup) -> Unpinned | None:
    """The class of batches, or of parts of them, that pinning does not reach."""
    if setup.framework in ("transformers", "TRL"):
        return None
    return unpinned(setup, ((each.module, each.call) for each in training_loaders(setup)))


def persistent_workers(setup: Setup) -> Measure:
    key, title = "persistent_workers", "Persistent workers"
    if why := setup.lacking("persistent_workers"):
        return setup.not_applicable(key, title, why)
    number = _setting(setup, "num_workers", 0)
    if number and all(v.truth is False for v in number):
        return setup.not_applicable(key, title, "the loader has no workers")
    if (
        setup.framework == "Lightning"
        and lightning_argument(setup, "reload_dataloaders_every_n_epochs", 0).truth
    ):
        return setup.not_applicable(key, title, "the loaders are made again for each epoch")
    loaders = () if setup.framework in ("transformers", "TRL") else training_loaders(setup)
    if loaders and all(is_endless(setup, each.module, each.call) for each in loaders):
        return setup.not_applicable(key, title, "the loader never ends, so that its workers start once")
    row = _decided(setup, key, title, _setting(setup, "persistent_workers", False), "`persistent_workers`")
    if row.state is not State.OFF:
        return row
    if once := single_pass(setup):
        why, place = once
        places = (*(() if place is None else (place,)), *row.evidence[:3])
        return Measure(
            key,
            title,
            State.NOT_APPLICABLE,
            f"{why}, so that its workers start once",
            tuple(dict.fromkeys(places)),
        )
    if changed := changes_between_epochs(setup):
        read, place = changed
        why = f"{read}, of which workers that are kept would not see the changes"
        return Measure(key, title, State.NOT_APPLICABLE, why, (place, *row.evidence[:3]))
    return row


def prefetch(setup: Setup) -> Measure:
    key, title = "prefetch", "Prefetching"
    number = _setting(setup, "num_workers", 0)
    if number and all(v.truth is False for v in number):
        return setup.not_applicable(key, title, "the loader has no workers")
    if why := setup.lacking("prefetch_factor", "`prefetch_factor`"):
        works = bool(number) and all(v.truth for v in number)
        state = State.ON if works else State.NOT_APPLICABLE
        return Measure(
            key, title, state, f"2 for each worker, fixed: {why}", _places(number) if works else ()
        )
    values = [
        Value(True, 2, "2 for each worker by default", v.place) if v.known and v.value is None else v
        for v in _setting(setup, "prefetch_factor", None)
    ]
    if values and not all(v.truth for v in number):
        return Measure(
            key, title, State.UNKNOWN, "only with workers, whose number is not known", _places(values)
        )
    return _decided(setup, key, title, values, "`prefetch_factor`")


def _places(values: list[Value]) -> tuple[Place, ...]:
    return tuple(v.place for v in values if v.place is not None)[:4]
