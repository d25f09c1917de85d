"""The optimizer: fused update, gradients set to None."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ptopt.audit.arguments import TrainerArguments
from ptopt.audit.known import Value, agreed
from ptopt.audit.measures.clipping import refuses_fused
from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, Place, State
from ptopt.project.added import ADDED
from ptopt.project.facts import ProjectFacts
from ptopt.source.bindings import Binding

_TORCH = re.compile(r"^(torch\.optim(\.\w+)*\.|optim\.)(Adam|AdamW|SGD|Adagrad)$")
_UNFUSED = (
    "RAdam",
    "NAdam",
    "RMSprop",
    "Adadelta",
    "Adamax",
    "ASGD",
    "LBFGS",
    "Rprop",
    "SparseAdam",
    "Muon",
    "Adafactor",
)
_FUSED = re.compile(
    r"^(Fused(Adam\w*|SGD|LAMB|Lamb|Lars|LARS|NovoGrad|Adagrad|Lion|MixedPrecisionLamb|\w*Optimizer)|DeepSpeedCPUAdam|HybridAdam|\w*Adam\w*8bit|Paged\w+|SGD8bit|CPUAdam|Lion8bit)$"
)
_FUSED_WORD = re.compile(r"Fused[A-Z]|CPUAdam|HybridAdam|8bit|Paged")
_OF_CLASS = re.compile(r"`fused` of `(\w+)`|`(\w+)` with `fused`")
FILLED_BY_HAND = "gradients are filled with zeros by hand"
_UNPACKED = re.compile(r"^`\*\*` at ")  # what is unpacked there was not found
# Class of torch.optim -> its argument `fused`
FUSED_ARGUMENT = {
    "Adagrad": ADDED["Adagrad(fused=True)"],
    "Adam": ADDED["Adam(fused=True)"],
    "AdamW": ADDED["fused=True"],
    "SGD": ADDED["SGD(fused=True)"],
}
_FUSABLE = tuple(FUSED_ARGUMENT)
# `default_optim` of `TrainingArguments`, in the wheels of 4.53 and of 4.54 to 5.6
_FUSED_BY_DEFAULT, _FUSED_SINCE = "4.54", "2.8"  # of transformers; of torch
_LISTED = 3  # places of optimizers beside that of what speaks against a fused one


def _by_default(setup: Setup) -> Value:
    """What torch does where nobody asks for the fused update: `foreach` is its default on CUDA since 2.0."""
    if setup.facts.excludes("torch", "2.0"):
        pin = setup.facts.span("torch")
        return Value(True, False, f"before torch 2.0 the update is a loop over the parameters; {pin}")
    if setup.facts.divided("torch", "2.0"):
        pin = setup.facts.span("torch")
        return Value(True, False, f"torch loops over the parameters before 2.0, and uses the multi-tensor update on CUDA since; {pin}")  # fmt: skip
    older = setup.admits_older("2.0", "loop over the parameters")
    return Value(True, False, f"torch uses the multi-tensor update on CUDA{older}")


_FOREACH = "`foreach=True` asks for the multi-tensor update"
_MAY_ASK = "`foreach` decides between the multi-tensor update and a loop over the parameters"


def may_ask_for_foreach(detail: str) -> bool:
    """Does a row say that the call asks for the multi-tensor update, or may ask for it?"""
    return _FOREACH in detail or _MAY_ASK in detail


def _with_foreach(value: Value, foreach: Value | None, by_default: bool) -> Value:
    """What torch does where the fused update is off and the call has `foreach`."""
    if foreach is None or value.truth is not False or (foreach.known and foreach.value is None):
        return value
    if foreach.truth is True:
        why = _FOREACH
    elif foreach.truth is False:
        why = "`foreach=False` updates the parameters one by one"
    else:
        why = _MAY_ASK
    return replace(value, note=why if by_default or not value.note else f"{value.note}; {why}")


def _asked(setup: Setup, module: Module, call: ast.Call, value: Value | None = None) -> Value:
    """What torch does for a call, whose argument `fused` has that value; None: it is not given."""
    foreach = setup.keyword(call, "foreach")
    given = None if foreach is None else setup.value(module, foreach)
    return _with_foreach(value or _by_default(setup), given, value is None)


def _is_default(setup: Setup, found: Candidate) -> bool:
    """Is it made, and nothing said of `fused`?"""
    return found.value == _by_default(setup) or found.value.note.startswith("`foreach")


def fused(setup: Setup) -> Measure:
    key, title = "fused_optimizer", "Fused optimizer"
    given = any(True for _ in setup.live.found(_given_optimizers))
    if setup.framework in ("transformers", "TRL") and not given:
        value = TrainerArguments(setup).of("optim")
        default = value.lacking is not None or (not value.known and "default of" in value.note)
        if default and setup.facts.excludes("transformers", "4.32"):  # `adamw_hf`, by this name since 4.16
            why = f"{setup.facts.span('transformers')}: its Trainer takes its own AdamW, which has no fused update"
            return setup.not_applicable(key, title, why)
        if not value.known and "default of" in value.note:
            value = _default_of_transformers(setup.facts, value)
        places = () if value.place is None else (value.place,)
        if not value.known:
            return Measure(key, title, State.UNKNOWN, f"`optim`: {value.note}", places)
        name = str(value.value)
        on = any(part in name for part in ("fused", "8bit", "paged", "4bit"))
        note = f" ({value.note})" if value.note else ""
        return Measure(key, title, State.ON if on else State.OFF, f"`optim` is {name}{note}", places)
    every = list(_optimizers(setup))
    # Of several classes the one that is made by default, where that is known.
    found = [c for c in every if _is_default(setup, c) or c.value.truth is not False]
    if not found and setup.framework == "DeepSpeed":
        why = "DeepSpeed makes the optimizer that its configuration names"
        return Measure(key, title, State.UNKNOWN, why, setup.where())
    if not every:
        return _none_seen(setup, key, title)
    if lacking := _without_fused(setup, every):
        return lacking
    row = setup.decide(key, title, found or every, "")
    refused = refuses_fused(setup) if row.state is State.OFF else None
    if refused is None:
        return row
    why, place = refused
    places = (*row.evidence[:_LISTED], *(() if place is None else (place,)))
    return Measure(key, title, State.NOT_APPLICABLE, why, tuple(dict.fromkeys(places)))


def _default_of_transformers(facts: ProjectFacts, value: Value) -> Value:
    """The optimizer that the pinned versions take where none is named; else what it depends on."""
    span, torch = facts.span("transformers"), facts.span("torch")
    if facts.excludes("transformers", "4.50"):
        return replace(value, known=True, value="AdamW", note=span)
    if facts.allows("transformers", _FUSED_BY_DEFAULT):
        return value
    if facts.excludes("torch", _FUSED_SINCE):
        return replace(value, known=True, value="adamw_torch", note=f"default of {span} with {torch}")
    if not facts.allows("torch", _FUSED_SINCE):
        return replace(value, known=True, value="adamw_torch_fused", note=f"default of {span} with {torch}")
    admits = f"the project admits both ({torch})" if torch else "no version of torch was found"
    note = f"{span} takes adamw_torch_fused with torch {_FUSED_SINCE} or later and adamw_torch with an older one; {admits}"
    return replace(value, note=note)


def _without_fused(setup: Setup, found: list[Candidate]) -> Measure | None:
    """The row where the classes are those of a torch that has no fused update of them."""
    asked = [
        c
        for c in found
        if c.value.truth is not False
        and not c.detail.startswith("`fused` of ")
        and not _UNPACKED.search(c.value.note)
    ]
    named = {match[1] or match[2] for c in found if (match := _OF_CLASS.match(c.detail)) is not None}
    arguments = [added for name, added in FUSED_ARGUMENT.items() if name in named]
    if (
        asked
        or not arguments
        or not all(setup.facts.excludes(added.package, added.version) for added in arguments)
    ):
        return None
    first = found[0]
    name = min(named)
    why = (
        f"`{name}` has a fused update since torch {FUSED_ARGUMENT[name].version}; {setup.facts.span('torch')}"
    )
    return Measure("fused_optimizer", "Fused optimizer", State.NOT_APPLICABLE, why, (first.place,))


def _none_seen(setup: Setup, key: str, title: str) -> Measure:
    for cls, module in setup.live.classes.items():
        if any(text_of(base).rpartition(".")[2] in ("Optimizer", *_FUSABLE) for base in cls.bases):
            return Measure(
                key, title, State.NOT_APPLICABLE, f"`{cls.name}` is an optimizer of the repository",
                (setup.place(module, cls),),
            )  # fmt: skip
    for module, call in setup.calls(*_UNFUSED):
        name = setup.qualified(module, call.func)
        if name.startswith(("torch.optim", "optim.")) and setup.runs(module, call).truth is not False:
            short = name.rpartition(".")[2]
            why = f"`{short}` of torch has no fused update"
            return Measure(key, title, State.NOT_APPLICABLE, why, (setup.place(module, call),))
    passed = list(_classes(setup))
    if passed:
        return _without_fused(setup, passed) or setup.decide(key, title, passed, "")
    unfused = next(_held_unfused(setup), None)
    if unfused is not None:
        place, name = unfused
        why = f"`{name}` of torch has no fused update"
        return Measure(key, title, State.NOT_APPLICABLE, why, (place,))
    by_name = [
        pair
        for pair in setup.calls("getattr")
        if pair[1].args and text_of(pair[1].args[0]) in ("torch.optim", "optim")
    ]
    if by_name and not setup.configured.of(("fused",)) and setup.runs(*by_name[0]).truth is not False:
        detail = "the optimizer is one of torch.optim by its name, and nothing asks for the fused update"
        return Measure(key, title, State.OFF, detail, (setup.place(*by_name[0]),))
    others = [(module, call) for module, call, _ in setup.live.found(_other_optimizer)]
    lacking = (
        "" if setup.blind else setup.lacking("Adam(fused=True)", "a fused update")
    )  # the first that had one
    if others:
        place = setup.place(*others[0])
        if lacking:
            return Measure(key, title, State.NOT_APPLICABLE, lacking, (place,))
        return Measure(
            key, title, State.UNKNOWN, f"the optimizer is `{text_of(others[0][1].func)[:60]}`", (place,)
        )
    # A training makes one: what keeps it from being made by default, such as data to name, holds when it trains.
    kept = list(_of_torch(setup, reached=False))
    if kept and len({c.value.truth for c in kept}) == 1:
        return setup.decide(key, title, kept, "")
    if lacking:
        return setup.not_applicable(key, title, lacking)
    return Measure(key, title, State.UNKNOWN, "no optimizer of torch seen", setup.where())


def only_lbfgs(setup: Setup) -> Place | None:
    """The place of an `LBFGS`, where no other optimizer is known to step in what runs."""
    made = [
        (module, call)
        for module, call in setup.calls(*_UNFUSED)
        if setup.qualified(module, call.func).startswith(("torch.optim", "optim."))
        and setup.runs(module, call).truth is not False
    ]
    first = made[0] if made else None
    if first is None or any(text_of(call.func).rpartition(".")[2] != "LBFGS" for _, call in made):
        return None
    if any(True for _ in _optimizers(setup)) or any(True for _ in _classes(setup)):
        return None
    return setup.place(*first)


def _given_optimizers(module: Module, call: ast.Call) -> bool | None:
    return any(keyword.arg == "optimizers" for keyword in call.keywords) or None


def _other_optimizer(module: Module, call: ast.Call) -> bool | None:
    """Is it something that is called an optimizer, and none of torch?"""
    named = call.args and re.search(r"optim|Optimizer", text_of(call.func))
    if not named or "parameters" not in text_of(call.args[0]):
        return None
    return not _TORCH.match(qualified(module, call.func)) or None


def _classes(setup: Setup) -> Iterator[Candidate]:
    """`train(optimizer=torch.optim.Adam)`: a class that is handed on, and what timm makes by a name."""
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named(*_FUSABLE):
            parent = module.file.index.parent(node)
            if isinstance(parent, ast.Call) and parent.func is node or not setup.live.runs(module, node):
                continue
            if _TORCH.match(setup.qualified(module, node)) and setup.runs(module, node).truth is not False:
                yield Candidate(_by_default(setup), setup.place(module, node), f"`fused` of `{node.attr}`")
        for held in () if setup.configured.of(("fused",)) else module.once(_held_names, module.file.tree):
            runs = setup.live.runs(module, held) and setup.runs(module, held).truth is not False
            if runs and _TORCH.match(name := setup.qualified(module, held)):
                last = name.rpartition(".")[2]
                yield Candidate(_by_default(setup), setup.place(module, held), f"`fused` of `{last}`")
    for module, call in setup.calls("create_optimizer", "create_optimizer_v2"):
        if setup.qualified(module, call.func).startswith("timm"):
            options = (setup.evaluator.option(name) for name in ("opt", "optimizer"))
            name = next((str(o.value).lower() for o in options if o is not None and o.known), "")
            if name in ("sgd", "momentum", "nesterov", "adam", "adamw", "adagrad"):
                yield Candidate(_by_default(setup), setup.place(module, call), f"`{name}` of timm")


def _held_unfused(setup: Setup) -> Iterator[tuple[Place, str]]:
    """`config = {"optimizer": {"type": optim.RMSprop}}`: a class without a fused update that is held to be called."""
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named(*_UNFUSED):
            holds = isinstance(module.file.index.parent(node), (ast.Dict, ast.Assign, ast.IfExp, ast.keyword))
            name = setup.qualified(module, node)
            of_torch = holds and name.startswith(("torch.optim.", "optim."))
            if of_torch and setup.live.runs(module, node) and setup.runs(module, node).truth is not False:
                yield setup.place(module, node), name.rpartition(".")[2]


def _held_names(module: Module, _: ast.Module) -> list[ast.Name]:
    """What a table, a variable or an argument holds by its name: `{"sgd": SGD, "adam": Adam}`."""
    return [
        node
        for node in module.file.index.of_type(ast.Name)
        if node.id in module.imported
        and isinstance(module.file.index.parent(node), (ast.Dict, ast.Assign, ast.IfExp, ast.keyword))
    ]


def _configured(setup: Setup) -> Iterator[Candidate]:
    """`_target_: torch.optim.AdamW` of a configuration"""
    for target in setup.configured.targets if setup.configured.is_composed else ():
        name = str(target.value)
        if not _TORCH.match(name):
            continue
        given = setup.configured.beside(target, "fused")
        value = agreed(given) if given else None
        foreach = setup.configured.beside(target, "foreach")
        value = _with_foreach(
            value or _by_default(setup), agreed(foreach) if foreach else None, value is None
        )
        yield Candidate(value, target.place, f"`fused` of `{name.rpartition('.')[2]}`")


def _optimizers(setup: Setup) -> Iterator[Candidate]:
    yield from _configured(setup)
    yield from _of_torch(setup, reached=True)
    for module, call in setup.named(_FUSED):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else text_of(call.func)
        yield setup.site(module, call, f"`{name}`")
    yield from _by_other_names(setup)
    yield from _chosen(setup)


def _of_torch(setup: Setup, reached: bool) -> Iterator[Candidate]:
    """The optimizers of torch that are made by default; those that only an option makes where not `reached`."""
    for module, call in setup.calls(*_FUSABLE):
        name = setup.qualified(module, call.func)
        if not (name.startswith("torch.optim") or _TORCH.match(name)):
            continue
        if _in_optimizer(module, call):
            continue
        short = name.rpartition(".")[2]
        if (setup.runs(module, call).truth is not False) is not reached:
            continue
        given = setup.keyword(call, "fused")
        if given is not None:
            value = _asked(setup, module, call, setup.value(module, given))
            found = setup.site(module, call, f"`{short}` with `fused`", value)
            yield found if reached else replace(found, value=value)
        elif setup.unpacks(call):
            value = setup.unpacked(module, call, "fused", _by_default(setup)) or Value(
                False, note=f"`**` at {setup.place(module, call)} gives it"
            )
            found = setup.site(module, call, f"`{short}` with `fused`", value)
            yield found if reached else replace(found, value=value)
        else:
            yield Candidate(_asked(setup, module, call), setup.place(module, call), f"`fused` of `{short}`")


def _in_optimizer(module: Module, call: ast.Call) -> bool:
    """Does an optimizer of the repository make it for itself?"""
    cls = module.file.index.class_of(call)
    return cls is not None and any(text_of(base).endswith("Optimizer") for base in cls.bases)


def _other_names(module: Module, call: ast.Call) -> list[tuple[Binding, str]] | None:
    """What the name that is called is bound to in the function, where that is a name, too."""
    if not isinstance(call.func, ast.Name) or call.func.id in module.imported:
        return None
    function = module.file.index.function_of(call)
    found = [
        (binding, qualified(module, binding.value))
        for binding in module.file.bindings.of(function, call.func.id)
        if binding.kind == "assign" and isinstance(binding.value, (ast.Name, ast.Attribute))
    ]
    return found or None


def _by_other_names(setup: Setup) -> Iterator[Candidate]:
    """`cls = torch.optim.AdamW` and `cls(parameters)`"""
    for module, call, given in setup.live.found(_other_names):
        for binding, name in given:
            last = name.rpartition(".")[2]
            if _TORCH.match(name):
                fused = setup.keyword(call, "fused")
                value = None if fused is None else setup.value(module, fused)
                enabling = _asked(setup, module, call, value)
                if setup.runs(module, binding.node).truth is not False:
                    yield Candidate(enabling, setup.place(module, call), f"`fused` of `{last}`")
            elif _FUSED.match(last):
                runs = setup.runs(module, binding.node)
                yield Candidate(runs, setup.place(module, binding.node), f"`{last}`")


def _chosen(setup: Setup) -> Iterator[Candidate]:
    """`Adam = DeepSpeedCPUAdam if offload else FusedAdam`: classes that are called by another name."""
    for module in setup.live.read.values():
        for name in module.file.index.of_type(ast.Name) if module.file.search(_FUSED_WORD) else ():
            if not _FUSED.match(name.id) or name.id in module.definitions or isinstance(name.ctx, ast.Store):
                continue
            if setup.live.runs(module, name) and isinstance(
                module.file.index.parent(name), (ast.Assign, ast.IfExp)
            ):
                runs = setup.runs(module, module.file.index.statement_of(name))
                yield Candidate(runs, setup.place(module, name), f"`{name.id}`")


# `AcceleratedOptimizer.zero_grad` passes `set_to_none=True` by default since this version: `accelerate/optimizer.py` of 0.27.2 and 0.28.0.
_SETS_NONE = "0.28.0"


def zero_grad(setup: Setup) -> Measure:
    key, title = "set_to_none", "Gradients set to None"
    kept: list[Place] = []
    for module, call in setup.calls("zero_grad"):
        given = setup.keyword(call, "set_to_none", 0)
        if (
            given is not None
            and setup.value(module, given).truth is False
            and setup.runs(module, call).truth is not False
        ):
            kept.append(setup.place(module, call))
    if setup.framework == "DeepSpeed":
        return setup.not_applicable(key, title, "DeepSpeed clears the gradients")
    by_hand = None if kept else _by_hand(setup, key, title)
    if by_hand is not None:
        return by_hand
    if why := setup.lacking("set_to_none"):
        return setup.not_applicable(key, title, why)
    if kept:
        return Measure(
            key, title, State.OFF, "`zero_grad(set_to_none=False)` fills them with zeros", tuple(kept)[:4]
        )
    asked = [
        (setup.place(module, call), given is not None and setup.value(module, given).truth)
        for module, call in setup.calls("zero_grad")
        for given in (setup.keyword(call, "set_to_none", 0),)
        if setup.runs(module, call).truth is not False
    ]
    stated = [place for place, is_true in asked if is_true]
    own = setup.framework not in ("transformers", "TRL", "Lightning")
    pin = setup.facts.span("torch")
    if stated and (setup.facts.excludes("torch", "2.0") or (own and len(stated) == len(asked))):
        return Measure(key, title, State.ON, "`set_to_none=True`", tuple(stated)[:4])
    if setup.framework == "Accelerate" and setup.facts.excludes("accelerate", _SETS_NONE):
        pin = setup.facts.span("accelerate")
        detail = f"{pin}: the optimizers of Accelerate before {_SETS_NONE} fill them with zeros"
        return Measure(key, title, State.OFF, detail, _asked_at(setup))
    if setup.facts.excludes("torch", "2.0"):
        return Measure(
            key,
            title,
            State.OFF,
            f"{pin}: before torch 2.0 the default fills them with zeros",
            _asked_at(setup),
        )
    if setup.facts.divided("torch", "2.0"):
        why = f"{pin}: before torch 2.0 the default fills them with zeros, since then it sets them to None"
        return Measure(key, title, State.UNKNOWN, why, _asked_at(setup))
    if setup.named_before("2.0"):
        why = f"the default since torch 2.0, zeros before; the project names {pin}"
        return Measure(key, title, State.UNKNOWN, why, _asked_at(setup))
    why = "the default since torch 2.0" + setup.admits_older("2.0", "fill them with zeros")
    return Measure(key, title, State.ON, why, _asked_at(setup))


def _asked_at(setup: Setup) -> tuple[Place, ...]:
    """The calls of `zero_grad` that run, nearest to the training first; where it starts, where a library makes them."""
    start = setup.where()
    paths = {place.path for place in start}
    found = [
        setup.place(module, call)
        for module, call in setup.calls("zero_grad")
        if setup.runs(module, call).truth is not False
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda place: place.path not in paths))[:4] or start


def _by_hand(setup: Setup, key: str, title: str) -> Measure | None:
    """Where no optimizer is asked: what a function of the repository does with the gradients."""
    asked = [
        (module, call)
        for module, call in setup.calls("zero_grad")
        if isinstance(call.func, ast.Attribute)
        and not _defined(setup, module, call)
        and setup.runs(module, call).truth is not False
    ]
    if asked or setup.framework not in ("PyTorch", "Accelerate", "Fabric"):
        return None
    zeros, none = [], []
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named("grad"):
            if not setup.live.runs(module, node) or setup.runs(module, node).truth is False:
                continue
            parent = module.file.index.parent(node)
            if isinstance(parent, ast.Attribute) and parent.attr in ("data", "zero_", "detach_"):
                text = text_of(module.file.index.statement_of(node))
                zeros += [setup.place(module, node)] if ".zero_()" in text else []
            elif isinstance(parent, ast.Assign) and getattr(parent.value, "value", 0) is None:
                none.append(setup.place(module, node))
    if zeros:
        return Measure(key, title, State.OFF, FILLED_BY_HAND, tuple(zeros)[:4])
    if none:
        return Measure(key, title, State.ON, "gradients are set to None by hand", tuple(none)[:4])
    return None


def _defined(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Is it the method of a class of the repository that holds no module, or inside one?"""
    function = module.file.index.function_of(call)
    if function is not None and function.name == "zero_grad":
        return True
    own = [f for f in setup.live.functions if f.name == "zero_grad"]
    receiver = text_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return bool(own) and not re.search(r"opt|model|net", receiver, re.I)
