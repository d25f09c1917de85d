"""The data loader of the training: workers, pinning, prefetching."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.calling import callers, holds_of_all_calls, lineage
from ptopt.audit.foreign import calls_of
from ptopt.audit.known import Value, agreed, position_of
from ptopt.audit.measures.endless import is_endless
from ptopt.audit.measures.itemstate import changes_between_epochs
from ptopt.audit.measures.passes import single_pass
from ptopt.audit.measures.unpinned import Unpinned, unpinned
from ptopt.audit.modules import Module, text_of
from ptopt.audit.phases import IS_TRAINING, asks_for_training
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_LOADER = re.compile(r"^(\w*DataLoader\w*|\w*Dataloader|WebLoader)$")
_EVAL = re.compile(
    r"(^|[_.\W])(val|valid|validation|test|eval|evaluation|dev|predict|infer)|(val|test|eval)_?(set|loader|dl|data)",
    re.I,
)
_COUNTS_CPUS = re.compile(r"cpu_count|sched_getaffinity")
_SAMPLES = re.compile(r"^(sampl(e|ing)|generate|inference)")
_TRAIN = re.compile(r"train|\btr_", re.I)
_TESTS = frozenset({"test", "validate", "predict", "evaluate"})
_FOREIGN = re.compile(r"^(nvidia|webdataset|ffcv|tensorflow_datasets)$")
_POSITIONS = {"num_workers": 5, "pin_memory": 7}
_BATCH_POSITION = 1
# A function of another library that makes a loader, by its name: what it does with what it is not given is not known.
_MAKES_LOADER = re.compile(r"^(create|make|build|get|setup|prepare)_(\w+_)?(data_?)?loaders?$")
_NAMED = re.compile(r"`-*(?:\w+\.)*([\w-]+)`")  # in a note that names an option or a key


# Functions of libraries that make a `DataLoader`, with the defaults that differ from its own.
# timm: `timm/data/loader.py`, the same in 0.4.12, 0.9.2 and 1.0.19.
_FACTORIES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "create_loader": {
        "timm": {"num_workers": 1, "pin_memory": False, "persistent_workers": True, "use_prefetcher": True}
    },
}


@dataclass(frozen=True, slots=True)
class _Loader:
    module: Module
    call: ast.Call
    own: bool  # a class of the repository
    library: str = ""  # whose function makes it
    unread: str = ""  # the function of a library whose defaults are not known

    def default(self, setup: Setup, name: str, default: Any) -> tuple[Any, str]:
        """What the argument is where the call does not give it, and whose default that is."""
        if not self.library:
            return default, "the default of `DataLoader`"
        last = setup.qualified(self.module, self.call.func).rpartition(".")[2]
        given = _FACTORIES.get(last, {}).get(self.library, {})
        whose = f"`{last}` of {self.library}" if name in given else "`DataLoader`"
        return given.get(name, default), f"the default of {whose}"


def _loaders(setup: Setup) -> list[_Loader]:
    """The loaders of the training; those of an evaluation where nothing says which is which are left out."""
    found: list[tuple[_Loader, str]] = []
    for module, call in setup.named(_LOADER):
        if (
            setup.runs(module, call).truth is False
            or module.file.index.class_of(call) is None
            and not call.args
            and not call.keywords
            or _is_only_tested(module, call)
            or _is_of_dataset(module, call)
        ):
            continue
        name = (
            setup.live.modules.resolve(module, text_of(call.func))
            if not isinstance(call.func, ast.Call)
            else None
        )
        if name is not None and not isinstance(name[1], ast.ClassDef):
            continue  # a function that makes loaders: the call in it counts
        if name is not None and (_makes_its_own(setup, *name) or not _is_loader(setup, *name)):
            continue
        own = name is not None and not _is_plain(*name)
        found.append((_Loader(module, call, own), _about(module, call)))
    found += [*((loader, "") for loader in _derived(setup)), *setup.once(_by_parameter)]
    found += [(loader, _about(loader.module, loader.call)) for loader in _of_libraries(setup)]
    training = [loader for loader, text in found if _TRAIN.search(text)]
    training = training or [
        each for each in setup.once(loaders_of_others) if _TRAIN.search(_about(each.module, each.call))
    ]
    only = [loader for loader, text in found if _TRAIN.search(text) and not _EVAL.search(text)]
    training = only or training  # not `loader_train_eval` beside `loader_train`
    neutral = [loader for loader, text in found if not _TRAIN.search(text) and not _EVAL.search(text)]
    return training or [
        each
        for each in neutral
        if not each.module.file.context.grad_off(each.call)  # a loop over samples to look at
        and not _is_for_evaluation(setup, each.module, each.call)
    ]


def loaders_of_others(setup: Setup) -> list[_Loader]:
    """`tlt.data.create_token_label_loader(...)`: what functions of libraries that are not read make, not for an evaluation."""
    found = []
    for module, call in setup.named(_MAKES_LOADER):
        level, package, _ = module.imported.get(text_of(call.func).partition(".")[0], (1, "", ""))
        library, last = package.partition(".")[0], setup.qualified(module, call.func).rpartition(".")[2]
        if (
            level
            or library in _FACTORIES.get(last, ())
            or not setup.is_external(module, call.func)
            or setup.live.modules.is_ours(package, module.path)
            or setup.runs(module, call).truth is False
        ):
            continue
        about = _about(module, call)
        if _TRAIN.search(about) or not _EVAL.search(about):
            found.append(_Loader(module, call, False, library, f"`{last}` of `{library}`"))
    return found


def _is_of_dataset(module: Module, call: ast.Call) -> bool:
    """Is it a loader in a data set, which that reads in `__getitem__`: inside of a worker of the loader that the training has?"""
    cls = module.file.index.class_of(call)
    return cls is not None and any(
        isinstance(each, FUNCTIONS) and each.name == "__getitem__" and "iter(" in text_of(each)
        for each in cls.body
    )


def _is_only_tested(module: Module, call: ast.Call) -> bool:
    """`loader = DataLoader(...); trainer.test(model, loader)`"""
    statement = module.file.index.statement_of(call)
    if not (isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1):
        return False
    target = statement.targets[0]
    function = module.file.index.function_of(call)
    reads = module.file.reads_of(function, target.id) if isinstance(target, ast.Name) else []
    calls = [_taker(module, read) for read in reads]
    return bool(calls) and all(each is not None and last_name(each.func) in _TESTS for each in calls)


def _taker(module: Module, read: ast.Name) -> ast.Call | None:
    """The call that takes the name as an argument."""
    parent = module.file.index.parent(read)
    call = module.file.index.parent(parent) if isinstance(parent, ast.keyword) else parent
    return call if isinstance(call, ast.Call) and call.func is not read else None


def _is_for_evaluation(setup: Setup, module: Module, node: ast.AST) -> bool:
    """Do evaluations alone lead to the function that makes the loader, or calls that say so: `data["val"] = make("val")`?"""

    def evaluates(function: FunctionNode | None, holder: Module) -> bool:
        return function is not None and holder.file.context.is_eval_function(function)

    function = setup.live.outermost(module, node)
    return function is not None and (
        evaluates(function, module)
        or holds_of_all_calls(
            function,
            module,
            lambda called, holder: (
                (other, call)
                # A framework calls its hooks, whoever else does: `train_dataloader`.
                for other, call, _ in (
                    callers(setup.live, called, holder) if called not in setup.live.hooks else ()
                )
            ),
            setup.live.outermost,
            lambda other, call: (
                _says_evaluation(other, call) or evaluates(setup.live.outermost(other, call), other)
            ),
        )
    )


def _says_evaluation(module: Module, call: ast.Call) -> bool:
    """By the name of what it makes, or by a text that it is given."""
    statement = module.file.index.statement_of(call)
    targets = [text_of(t) for t in statement.targets] if isinstance(statement, ast.Assign) else []
    given = (*call.args, *(k.value for k in call.keywords))
    texts = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    named = " ".join([*targets, *texts])
    return bool(_EVAL.search(named)) and not _TRAIN.search(named)


def _of_libraries(setup: Setup) -> list[_Loader]:
    """`timm.data.create_loader(...)`"""
    return [
        _Loader(module, call, False, library)
        for name, libraries in _FACTORIES.items()
        for module, call in setup.calls(name)
        for library in libraries
        if setup.qualified(module, call.func).partition(".")[0] == library
        and setup.runs(module, call).truth is not False
    ]


def prefetchers(setup: Setup) -> list[Candidate]:
    """Loaders of timm for the training that copy each batch ahead of its step."""
    return [
        setup.site(each.module, each.call, "`PrefetchLoader` of timm copies with `non_blocking=True`", asked)
        for each in _of_libraries(setup)
        if _TRAIN.search(text := _about(each.module, each.call)) or not _EVAL.search(text)
        if (asked := _argument(setup, each, "use_prefetcher", True)).truth is not None
    ]


def _by_parameter(setup: Setup) -> list[tuple[_Loader, str]]:
    """`def make(data, cls=DataLoader, **options): return cls(data, **options)`: the calls of it."""
    found: list[tuple[_Loader, str]] = []
    for function, module in setup.live.functions.items():
        names = module.once(_given_loaders, function)
        made = [
            call
            for call in (module.file.calls.calls_in(function) if names else ())
            if isinstance(call.func, ast.Name) and call.func.id in names
        ]
        stated = made and any(k.arg in (*_POSITIONS, "persistent_workers") for k in made[0].keywords)
        if stated:
            found.append((_Loader(module, made[0], False), _about(module, made[0])))
        elif made:
            found += [
                (_Loader(other, call, False), _about(other, call))
                for other, node in setup.live.sites.get(function)
                if isinstance(call := other.file.index.parent(node), ast.Call) and call.func is node
            ]
    return found


def _given_loaders(module: Module, function: FunctionNode) -> frozenset[str]:
    """The parameters whose default is the class of a loader."""
    if not function.args.defaults and not function.args.kw_defaults:
        return frozenset()
    every = [*function.args.posonlyargs, *function.args.args]
    pairs = [
        *zip(reversed(every), reversed(function.args.defaults), strict=False),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return frozenset(a.arg for a, d in pairs if d is not None and _is_loader_class(d))


def _is_loader_class(default: ast.expr) -> bool:
    plain = isinstance(default, ast.Constant) and not isinstance(default.value, str)  # most are
    return not plain and _LOADER.match(text_of(default).rpartition(".")[2]) is not None


def _is_loader(setup: Setup, module: Module, cls: ast.AST | None) -> bool:
    """May the class be one of torch: not without bases, and no data set that is called a loader?"""
    lines = lineage(setup.live, module, cls if isinstance(cls, ast.ClassDef) else None)
    bases = [text_of(base).rpartition(".")[2] for _, each in lines for base in each.bases]
    return bool(bases) and not any(base.endswith("Dataset") or base == "object" for base in bases)


def _makes_its_own(setup: Setup, module: Module, cls: ast.AST | None) -> bool:
    """A class that hands its arguments on to a loader, derived or held, or one that derives from it: the call there counts."""
    inside = [*setup.named(_LOADER), *((each.module, each.call) for each in _derived(setup))]
    makers = {other.file.index.class_of(call) for other, call in inside}
    lines = lineage(setup.live, module, cls if isinstance(cls, ast.ClassDef) else None)
    return any(owner in makers for _, owner in lines)


def _is_plain(module: Module, cls: ast.AST | None) -> bool:
    """Derived from a loader, without an `__init__` of its own."""
    return (
        isinstance(cls, ast.ClassDef)
        and any(_LOADER.match(text_of(base).rpartition(".")[2]) for base in cls.bases)
        and not _has_init(cls)
    )


def _has_init(cls: ast.ClassDef) -> bool:
    return any(isinstance(each, FUNCTIONS) and each.name == "__init__" for each in cls.body)


def _derived(setup: Setup) -> list[_Loader]:
    """`super().__init__(..., num_workers=n)` of classes of the repository that derive from a loader."""
    return [
        _Loader(module, call, False)
        for module, call in setup.calls("__init__")
        if isinstance(call.func, ast.Attribute)
        and text_of(call.func.value).startswith("super(")
        and (cls := module.file.index.class_of(call)) is not None
        and any(_LOADER.match(text_of(base).rpartition(".")[2]) for base in cls.bases)
        and not _base_has_init(setup, module, cls)
    ]


def _base_has_init(setup: Setup, module: Module, cls: ast.ClassDef) -> bool:
    """Does the call go to an `__init__` of the repository, which itself makes the loader?"""
    return any(owner is not cls and _has_init(owner) for _, owner in lineage(setup.live, module, cls))


def _about(module: Module, call: ast.Call) -> str:
    """What the code around a loader calls it: the name it is given, the function, the data."""
    statement = module.file.index.statement_of(call)
    targets = " ".join(text_of(t) for t in statement.targets) if isinstance(statement, ast.Assign) else ""
    function = module.file.index.function_of(call)
    data = " ".join(text_of(a) for a in call.args[:1])
    data += " ".join(text_of(k.value) for k in call.keywords if k.arg == "dataset")
    inner = targets if _TRAIN.search(targets) or _EVAL.search(targets) else f"{targets} {data[:80]}"
    if _TRAIN.search(inner) or _EVAL.search(inner) or function is None:
        return inner
    if branch := _of_branch(module, call):
        return f"{inner} {branch}"
    return f"{inner} {'eval' if _SAMPLES.search(function.name) else function.name}"


def _of_branch(module: Module, call: ast.Call) -> str:
    """`if train: return DataLoader(...)`: "train", and "eval" of what runs otherwise; "" where no branch says it."""
    index = module.file.index
    for ancestor, child in index.ancestors(call):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            inside = child is ancestor.body or (isinstance(ancestor, ast.If) and child in ancestor.body)
            if (trains := asks_for_training(ancestor.test)) is not None:
                return "train" if trains is inside else "eval"
        body = getattr(ancestor, "body", None)
        for guard in body[: body.index(child)] if isinstance(body, list) and child in body else ():
            if (
                isinstance(guard, ast.If)
                and asks_for_training(guard.test)
                and isinstance(guard.body[-1], ast.Return)
            ):
                return "eval"
    return ""


def _argument(setup: Setup, loader: _Loader, name: str, default: Any) -> Value:
    position = {**_POSITIONS, "batch_size": _BATCH_POSITION}.get(name)
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


def _of_training_calls(setup: Setup, loader: _Loader, given: ast.expr) -> Value | None:
    """What those calls of a function that makes loaders give its parameter whose result is called a training's; None where none is."""
    function = loader.module.file.index.function_of(given)
    if function is None or not isinstance(given, ast.Name) or position_of(function, given.id) is None:
        return None

    def trains(module: Module, call: ast.Call) -> bool:
        statement = module.file.index.statement_of(call)
        named = " ".join(map(text_of, statement.targets)) if isinstance(statement, ast.Assign) else ""
        return _TRAIN.search(named) is not None and _EVAL.search(named) is None

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
    found = [_argument(setup, loader, name, default) for loader in _loaders(setup)]
    return found or _configured(setup, name, default) or _given_to_framework(setup, name)


def _given_to_framework(setup: Setup, name: str) -> list[Value]:
    """What calls of a framework that is not read state for the training loader that it makes; its defaults are not known."""
    stated = [
        (setup.value(module, given), setup.place(module, call), _about(module, call))
        for module, call, _ in calls_of(setup.live, setup.framework)
        if (given := _in_training(setup.keyword(call, name))) is not None
        and setup.runs(module, call).truth is not False
    ]
    return [
        replace(value, place=value.place or place)
        for value, place, about in stated
        if _TRAIN.search(about) or not _EVAL.search(about)
    ]


def _configured(setup: Setup, name: str, default: Any) -> list[Value]:
    """The setting of loaders that a configuration makes: `_target_: torch.utils.data.DataLoader`"""
    values = []
    for target in setup.configured.targets if setup.configured.is_composed else ():
        last = str(target.value).rpartition(".")[2]
        if not _LOADER.match(last) or _EVAL.search(".".join(target.keys[:-1])):
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
    sizes = [_argument(setup, loader, "batch_size", 1) for loader in _loaders(setup)]
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
    return unpinned(setup, ((each.module, each.call) for each in _loaders(setup)))


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
    loaders = () if setup.framework in ("transformers", "TRL") else _loaders(setup)
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
