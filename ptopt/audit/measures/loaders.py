"""Which data loaders feed the training, and not an evaluation."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptopt.audit.calling import callers, holds_of_all_calls, lineage
from ptopt.audit.modules import Module, text_of
from ptopt.audit.phases import asks_for_training
from ptopt.audit.setup import Setup
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

LOADER = re.compile(r"^(\w*DataLoader\w*|\w*Dataloader|WebLoader)$")
EVAL = re.compile(
    r"(^|[_.\W])(val|valid|validation|test|eval|evaluation|dev|predict|infer)|(val|test|eval)_?(set|loader|dl|data)",
    re.I,
)
_SAMPLES = re.compile(r"^(sampl(e|ing)|generate|inference)")
TRAIN = re.compile(r"train|\btr_", re.I)
_TESTS = frozenset({"test", "validate", "predict", "evaluate"})
POSITIONS = {"num_workers": 5, "pin_memory": 7}
# A function of another library that makes a loader, by its name: what it does with what it is not given is not known.
_MAKES_LOADER = re.compile(r"^(create|make|build|get|setup|prepare)_(\w+_)?(data_?)?loaders?$")


# Functions of libraries that make a `DataLoader`, with the defaults that differ from its own.
# timm: `timm/data/loader.py`, the same in 0.4.12, 0.9.2 and 1.0.19.
_FACTORIES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "create_loader": {
        "timm": {"num_workers": 1, "pin_memory": False, "persistent_workers": True, "use_prefetcher": True}
    },
}


@dataclass(frozen=True, slots=True)
class Loader:
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


def training_loaders(setup: Setup) -> list[Loader]:
    """The loaders of the training; those of an evaluation where nothing says which is which are left out."""
    found: list[tuple[Loader, str]] = []
    for module, call in setup.named(LOADER):
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
        found.append((Loader(module, call, own), about(module, call)))
    found += [*((loader, "") for loader in _derived(setup)), *setup.once(_by_parameter)]
    found += [(loader, about(loader.module, loader.call)) for loader in of_libraries(setup)]
    training = [loader for loader, text in found if TRAIN.search(text)]
    training = training or [
        each for each in setup.once(loaders_of_others) if TRAIN.search(about(each.module, each.call))
    ]
    only = [loader for loader, text in found if TRAIN.search(text) and not EVAL.search(text)]
    training = only or training  # not `loader_train_eval` beside `loader_train`
    neutral = [loader for loader, text in found if not TRAIN.search(text) and not EVAL.search(text)]
    return training or [
        each
        for each in neutral
        if not each.module.file.context.grad_off(each.call)  # a loop over samples to look at
        and not _is_for_evaluation(setup, each.module, each.call)
    ]


def loaders_of_others(setup: Setup) -> list[Loader]:
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
        text = about(module, call)
        if TRAIN.search(text) or not EVAL.search(text):
            found.append(Loader(module, call, False, library, f"`{last}` of `{library}`"))
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
    return bool(EVAL.search(named)) and not TRAIN.search(named)


def of_libraries(setup: Setup) -> list[Loader]:
    """`timm.data.create_loader(...)`"""
    return [
        Loader(module, call, False, library)
        for name, libraries in _FACTORIES.items()
        for module, call in setup.calls(name)
        for library in libraries
        if setup.qualified(module, call.func).partition(".")[0] == library
        and setup.runs(module, call).truth is not False
    ]


def _by_parameter(setup: Setup) -> list[tuple[Loader, str]]:
    """`def make(data, cls=DataLoader, **options): return cls(data, **options)`: the calls of it."""
    found: list[tuple[Loader, str]] = []
    for function, module in setup.live.functions.items():
        names = module.once(_given_loaders, function)
        made = [
            call
            for call in (module.file.calls.calls_in(function) if names else ())
            if isinstance(call.func, ast.Name) and call.func.id in names
        ]
        stated = made and any(k.arg in (*POSITIONS, "persistent_workers") for k in made[0].keywords)
        if stated:
            found.append((Loader(module, made[0], False), about(module, made[0])))
        elif made:
            found += [
                (Loader(other, call, False), about(other, call))
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
    return not plain and LOADER.match(text_of(default).rpartition(".")[2]) is not None


def _is_loader(setup: Setup, module: Module, cls: ast.AST | None) -> bool:
    """May the class be one of torch: not without bases, and no data set that is called a loader?"""
    lines = lineage(setup.live, module, cls if isinstance(cls, ast.ClassDef) else None)
    bases = [text_of(base).rpartition(".")[2] for _, each in lines for base in each.bases]
    return bool(bases) and not any(base.endswith("Dataset") or base == "object" for base in bases)


def _makes_its_own(setup: Setup, module: Module, cls: ast.AST | None) -> bool:
    """A class that hands its arguments on to a loader, derived or held, or one that derives from it: the call there counts."""
    inside = [*setup.named(LOADER), *((each.module, each.call) for each in _derived(setup))]
    makers = {other.file.index.class_of(call) for other, call in inside}
    lines = lineage(setup.live, module, cls if isinstance(cls, ast.ClassDef) else None)
    return any(owner in makers for _, owner in lines)


def _is_plain(module: Module, cls: ast.AST | None) -> bool:
    """Derived from a loader, without an `__init__` of its own."""
    return (
        isinstance(cls, ast.ClassDef)
        and any(LOADER.match(text_of(base).rpartition(".")[2]) for base in cls.bases)
        and not _has_init(cls)
    )


def _has_init(cls: ast.ClassDef) -> bool:
    return any(isinstance(each, FUNCTIONS) and each.name == "__init__" for each in cls.body)


def _derived(setup: Setup) -> list[Loader]:
    """`super().__init__(..., num_workers=n)` of classes of the repository that derive from a loader."""
    return [
        Loader(module, call, False)
        for module, call in setup.calls("__init__")
        if isinstance(call.func, ast.Attribute)
        and text_of(call.func.value).startswith("super(")
        and (cls := module.file.index.class_of(call)) is not None
        and any(LOADER.match(text_of(base).rpartition(".")[2]) for base in cls.bases)
        and not _base_has_init(setup, module, cls)
    ]


def _base_has_init(setup: Setup, module: Module, cls: ast.ClassDef) -> bool:
    """Does the call go to an `__init__` of the repository, which itself makes the loader?"""
    return any(owner is not cls and _has_init(owner) for _, owner in lineage(setup.live, module, cls))


def about(module: Module, call: ast.Call) -> str:
    """What the code around a loader calls it: the name it is given, the function, the data."""
    statement = module.file.index.statement_of(call)
    targets = " ".join(text_of(t) for t in statement.targets) if isinstance(statement, ast.Assign) else ""
    function = module.file.index.function_of(call)
    data = " ".join(text_of(a) for a in call.args[:1])
    data += " ".join(text_of(k.value) for k in call.keywords if k.arg == "dataset")
    inner = targets if TRAIN.search(targets) or EVAL.search(targets) else f"{targets} {data[:80]}"
    if TRAIN.search(inner) or EVAL.search(inner) or function is None:
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
