"""Which networks a script trains: those of which an optimizer gets the parameters. A teacher, an encoder that is only asked, and the
network that decodes pictures to look at are none of them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from ptopt.audit.calling import lineage
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, qualified, text_of
from ptopt.audit.optimizers import is_of_torch
from ptopt.audit.origins import Origins
from ptopt.audit.summaries import Held
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS

_OTHER = re.compile(
    r"(^|\.)(create_optimizer(_v2)?|\w*(Adam|AdamW|SGD|LAMB|Lamb|LARS|Lars|Lion|RMSprop|Adagrad|Muon|Adafactor|Shampoo|Prodigy)(W|8bit)?)$"
)
_GIVEN = re.compile(r"param", re.I)
_HELD_AS = re.compile(r"optim|(^|[_.])opt($|_)", re.I)
_ENGINES = re.compile(r"(^|\.)(deepspeed\.initialize|\w*Trainer)$")
_MODELS = ("model", "model_parameters", "models")
_MAKES = re.compile(
    r"^(_?(make|build|create|get|init|load|setup)(_|$)|.*_(model|net|network|encoder|decoder)$)"
)
_FAR = 4  # calls of calls
_FROZEN = (
    r"\b{0}\.requires_grad_\(False|\b{0}\.freeze\w*\(|(requires_grad|freeze)\w*\(\[?{0}\b|"
    r"\bin {0}\.parameters\(\):\s+\w+\.requires_grad(_\(| = )False"
)


class Trained:
    """Of one entry point. `known`: whether all optimizers that it makes were followed to their networks."""

    def __init__(self, live: Live, runs: Callable[[ast.AST, Module], bool | None]) -> None:
        self._live = live
        self.known = False
        self.left_out = False  # was anything, of what was asked about?
        self._calls: set[ast.AST] = set()
        self._code: set[ast.AST] = set()
        given = [each for each in _optimizers(live) if runs(each[1], each[0]) is not False]
        if not given or live.registers or live.truncated:
            return
        for module, _, parameters in given:
            origins = Origins(live)
            for part in parameters:
                origins.follow(part, module)
            self._calls |= origins.calls
            if origins.lost or not self._close([*origins.definitions.items()], origins.of_others):
                return
        asked = Origins(live, with_given=False)
        for module, part in _called_with_graph(live, runs):
            asked.follow(part, module)
        self._calls |= asked.calls
        self._close([*asked.definitions.items()], set())
        self.known = True

    def _close(self, waiting: list[tuple[ast.AST, Module]], calls: set[ast.AST]) -> bool:
        """With all code that is named in code. False where a part of it finds more by names in strings, and where no network is seen."""
        live = self._live
        found_by_name = live.once(_found_by_name)
        seen: set[ast.AST] = set()
        sees_network = any(map(_is_maker, calls))
        while waiting:
            unit, module = waiting.pop()
            if unit in seen:
                continue
            seen.add(unit)
            self._code.add(unit)
            sees_network |= isinstance(unit, ast.ClassDef) and _has_forward(unit)
            if isinstance(unit, ast.ClassDef):
                waiting += [
                    (method, module)
                    for method in unit.body
                    if isinstance(method, FUNCTIONS) and method in live.functions
                ]
            summary = live.summary(module, unit)
            for each in (
                summary,
                *(held.summary for name in summary.variables for held in live.once(_held).get(name, ())),
            ):
                waiting += [
                    (d, m)
                    for m, d in each.definitions.values()
                    if d is not None and not isinstance(d, ast.Module)
                ]
            for name in summary.mentions:
                if _MAKES.match(name):
                    waiting += [
                        (method, holder)
                        for method, holder in live.methods_named(name)
                        if not _of_network(live, method, holder)
                    ]
            for other, node in live.dynamic:
                if _around(other, node, unit):
                    return False
            waiting += found_by_name.get(unit, ())
        return sees_network

    def leaves_out(self, module: Module, node: ast.AST) -> bool:
        """Is it surely no code of a network that is trained, nor a call that makes one?"""
        if not self.known or node in self._calls:
            return False
        # What a step computes beside its networks counts, too; a network that is made there does not.
        out = self._is_outside(module, node, 0) and (
            _is_maker(node) or module.file.context.training_step(node) is None
        )
        self.left_out |= out
        return out

    def _is_outside(self, module: Module, node: ast.AST, depth: int) -> bool:
        """Does it stand in another class, in a function that only such code calls, or is it the making of another network?"""
        if node in self._calls:
            return False
        function, cls = self._live.outermost(module, node), module.file.index.class_of(node)
        if function in self._code or cls in self._code:
            return False
        if cls is not None or _is_maker(node):
            return True
        sites = self._live.sites.get(function) if function is not None and depth < _FAR else []
        return bool(sites) and all(self._is_outside(other, site, depth + 1) for other, site in sites)

    def leaves_out_value(self, module: Module, value: ast.expr) -> bool:
        """Is what the expression holds surely no network that is trained: `vae` of `torch.compile(vae)`?"""
        if not self.known:
            return False
        origins = Origins(self._live)
        origins.follow(value, module)
        networks = [
            each for each in origins.definitions if isinstance(each, ast.ClassDef) and _has_forward(each)
        ]
        made = [call for call in origins.of_others if _is_maker(call)]
        return (
            not origins.lost
            and bool(networks or made)
            and self._code.isdisjoint(origins.definitions)
            and self._calls.isdisjoint(made)
        )


def _is_maker(call: ast.AST) -> bool:
    """Does the name of what is called say that it makes a network?"""
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else text_of(call.func)
    return (
        name.startswith(("from_", "create_model", "get_model"))
        or name[:1].isupper()
        or "torchvision" in text_of(call.func)
        or "models." in text_of(call.func)
        or text_of(call.func).endswith(("clip.load", "hub.load"))
    )


def _has_forward(cls: ast.ClassDef) -> bool:
    return any(isinstance(each, FUNCTIONS) and each.name == "forward" for each in cls.body)


def _of_network(live: Live, method: ast.AST, module: Module) -> bool:
    cls = module.file.index.class_of(method)
    return any(_has_forward(each) for _, each in lineage(live, module, cls))


def _around(module: Module, node: ast.AST, unit: ast.AST) -> bool:
    return any(ancestor is unit for ancestor, _ in module.file.index.ancestors(node))


def _held(live: Live) -> dict[str, list[Held]]:
    """What variables of modules hold, by the name of the variable."""
    table: defaultdict[str, list[Held]] = defaultdict(list)
    for module in live.read.values():
        for held in live.summary(module, module.file.tree).held:
            live.enter(module, held.summary)
            for name in held.variables:
                table[name].append(held)
    return dict(table)


def _found_by_name(live: Live) -> dict[ast.AST, list[tuple[ast.AST, Module]]]:
    """Function or class -> the definitions that it finds by their names in strings."""
    table: defaultdict[ast.AST, list[tuple[ast.AST, Module]]] = defaultdict(list)
    for definition, places in live.sites.more.items():
        holder = _holder(live, definition)
        if holder is None:
            continue
        for _, (module, site) in places:
            function, cls = live.outermost(module, site), module.file.index.class_of(site)
            for unit in (function, cls):
                if unit is not None:
                    table[unit].append((definition, holder))
    return table


def _holder(live: Live, definition: ast.AST | None) -> Module | None:
    """The module of a definition that runs."""
    if isinstance(definition, FUNCTIONS):
        return live.functions.get(definition)
    return live.classes.get(definition) if isinstance(definition, ast.ClassDef) else None


def _optimizers(live: Live) -> Iterator[tuple[Module, ast.Call, list[ast.expr]]]:
    """The calls that make an optimizer, or an engine that does, with the arguments that lead to its parameters."""
    for module, call, (given, is_known) in live.found(_optimizer_made):
        if is_known or live.modules.resolve(module, dotted_name(call.func) or "?") is None:
            yield module, call, given


def _optimizer_made(module: Module, call: ast.Call) -> tuple[list[ast.expr], bool] | None:
    """Those arguments, and whether it surely makes one: else it does unless it is defined in the repository."""
    name = qualified(module, call.func)
    given = [
        *call.args[:1],
        *(k.value for k in call.keywords if k.arg in ("params", "parameters", "model")),
    ]
    if not given:
        return None
    if is_of_torch(name):
        return given, True
    if _ENGINES.search(name) and (models := [k.value for k in call.keywords if k.arg in _MODELS]):
        return models, True
    if _OTHER.search(name) and ("optimizer" in name or _is_given_parameters(call)):
        return [*call.args, *given] if "create" in name else given, False
    if _is_held_as_optimizer(module, call) and _GIVEN.search(text_of(given[0])):
        return given, False
    return None


def _is_given_parameters(call: ast.Call) -> bool:
    texts = " ".join(text_of(each) for each in (*call.args, *(k.value for k in call.keywords)))
    return _GIVEN.search(texts) is not None


def _called_with_graph(
    live: Live, runs: Callable[[ast.AST, Module], bool | None]
) -> Iterator[tuple[Module, ast.expr]]:
    """What the steps call while autograd records, and what no code freezes, such as the network of a loss: gradients go through it."""
    for module, call in live.calls:
        func, index = call.func, module.file.index
        step = module.file.context.training_step(call)
        if (
            step is None
            or not isinstance(func, (ast.Name, ast.Attribute))
            or module.file.context.grad_off(call)
        ):
            continue
        first: ast.expr = func
        while isinstance(first, ast.Attribute) and not is_self(first):
            first = first.value
        name = dotted_name(first)
        binding = module.file.bindings.last_before(first) if isinstance(first, ast.Name) else None
        within = binding is not None and index.within(binding.node, step.node) and binding.kind != "parameter"
        if not name or within or runs(call, module) is False:
            continue
        if re.search(_FROZEN.format(re.escape(name)), module.file.text) is None:
            yield module, func


def _is_held_as_optimizer(module: Module, call: ast.Call) -> bool:
    """`optimizer = chosen(model.parameters(), lr=rate)`"""
    parent = module.file.index.parent(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(_HELD_AS.search(text_of(target)) for target in targets)
