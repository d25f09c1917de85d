"""Where the functions of a repository are called, and what its classes derive from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.source.bindings import is_self
from ptopt.source.index import FunctionNode

_DEEPEST = 12
_CALLS_OF_CALLS = 3


Caller = tuple[Module, ast.Call, int]


def callers(live: Live, function: FunctionNode, module: Module) -> list[Caller]:
    """The calls of a function that run, each with how many of its parameters are given before the arguments."""
    known = live.once(_known_callers)
    if function not in known:
        known[function] = list(_callers(live, function, module))
    return known[function]


def _known_callers(_: Live) -> dict[FunctionNode, list[Caller]]:
    return {}


def _callers(live: Live, function: FunctionNode, module: Module) -> Iterator[Caller]:
    owner = module.file.index.parent(function)
    sites, method = _named_at(live, function, owner)
    initial = f"{owner.name}.__init__" if isinstance(owner, ast.ClassDef) else ""
    for other, node in sites:
        call = other.file.index.parent(node)
        if isinstance(call, ast.Call) and call.func is node:
            explicit = bool(initial) and function.name == "__init__" and text_of(node) == initial
            given = int(method and not explicit)
            if not method or _takes(function, call, given):
                yield other, call, given
        else:
            for alias in _calls_by_alias(other, node):
                yield other, alias, int(method)


def _takes(function: FunctionNode, call: ast.Call, given: int) -> bool:
    """Do the arguments of a call fit the parameters? `self.model.train()` calls no `def train(self, loader)`."""
    spec = function.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        return True
    passed = given + len(call.args)
    if passed > len(names) and spec.vararg is None:
        return False
    keywords = {keyword.arg for keyword in call.keywords}
    needed = names[passed : len(names) - len(spec.defaults)]
    needed += [p.arg for p, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    return keywords.issuperset(needed)


def partials(live: Live, function: FunctionNode, module: Module) -> list[Caller]:
    """`partial(function, flash=True)`: the calls that give some of its parameters, as `callers` has them."""
    known = live.once(_known_partials)
    if function not in known:
        known[function] = list(_partials(live, function, module))
    return known[function]


def _known_partials(_: Live) -> dict[FunctionNode, list[Caller]]:
    return {}


def _partials(live: Live, function: FunctionNode, module: Module) -> Iterator[Caller]:
    bound = live.once(_bound)
    if not bound:
        return
    sites, method = _named_at(live, function, module.file.index.parent(function))
    for other, node in sites:
        if node in bound:
            yield other, bound[node], int(method) - 1


def _bound(live: Live) -> dict[ast.AST, ast.Call]:
    """What `partial(...)` is given first, with the call."""
    return {
        call.args[0]: call
        for _, call in live.calls_of(frozenset({"partial"}))
        if call.args and dotted_name(call.func).rpartition(".")[2] == "partial"
    }


def _named_at(
    live: Live, function: FunctionNode, owner: ast.AST | None
) -> tuple[list[tuple[Module, ast.AST]], bool]:
    """Where a function is named, and whether its first parameter is given by the object."""
    if not isinstance(owner, ast.ClassDef):
        return live.sites.get(function), False
    if function.name == "__init__":
        return [*live.sites.get(owner), *live.once(_inits).get(owner, [])], True
    return live.mentions.get(function.name), not _is_static(function)


def _inits(live: Live) -> dict[ast.AST, list[tuple[Module, ast.AST]]]:
    """Class -> `super().__init__(...)` in the classes that derive from it."""
    table: dict[ast.AST, list[tuple[Module, ast.AST]]] = {}
    for other, node in live.mentions.get("__init__"):
        cls = other.file.index.class_of(node)
        if cls is None or not isinstance(node, ast.Attribute):
            continue
        resolved = [live.modules.resolve(other, name) for base in cls.bases if (name := dotted_name(base))]
        for owner in dict.fromkeys(
            found[1] for found in resolved if found is not None and found[1] is not None
        ):
            table.setdefault(owner, []).append((other, node))
    return table


def lineage(live: Live, module: Module, cls: ast.ClassDef | None) -> Iterator[tuple[Module, ast.ClassDef]]:
    """A class of the repository, and those it derives from."""
    waiting = [(module, cls)]
    for _ in range(_DEEPEST):
        if not waiting:
            return
        holder, owner = waiting.pop(0)
        if owner is None:
            continue
        yield holder, owner
        for base in owner.bases:
            found = live.modules.resolve(holder, dotted_name(base)) if dotted_name(base) else None
            if found is not None and isinstance(found[1], ast.ClassDef):
                waiting.append((found[0], found[1]))


def holds_of_all_calls(
    function: FunctionNode,
    module: Module,
    calls: Callable[[FunctionNode, Module], Iterable[tuple[Module, ast.Call]]],
    around: Callable[[Module, ast.Call], FunctionNode | None],
    holds: Callable[[Module, ast.Call], bool],
) -> bool:
    """Is the function called, and does `holds` hold of each call, or else of all calls of the function around it, a few deep?"""
    return _Chains(calls, around, holds, {}).lead(function, module, 0)


@dataclass(frozen=True, slots=True)
class _Chains:
    """Each function is looked at once for each depth: chains through functions that all call each other are too many to follow."""

    calls: Callable[[FunctionNode, Module], Iterable[tuple[Module, ast.Call]]]
    around: Callable[[Module, ast.Call], FunctionNode | None]
    holds: Callable[[Module, ast.Call], bool]
    known: dict[tuple[FunctionNode, int], bool]

    def lead(self, called: FunctionNode, module: Module, depth: int) -> bool:
        if depth > _CALLS_OF_CALLS:
            return False
        if (called, depth) not in self.known:
            found = list(self.calls(called, module))
            self.known[called, depth] = bool(found) and all(
                self.holds(other, call)
                or ((outer := self.around(other, call)) is not None and self.lead(outer, other, depth + 1))
                for other, call in found
            )
        return self.known[called, depth]


def handed_on(
    live: Live, module: Module, held: ast.Attribute
) -> Iterator[tuple[Module, ast.Assign, FunctionNode]]:
    """The assignments of `self.name` in the class and its bases that give it a parameter of a method, `__init__` left out; and
    those of `self.part.name` in a class of which an object of this one is a part.
    """
    owners = list(lineage(live, module, module.file.index.class_of(held)))
    classes = [cls for _, cls in owners]
    for holder, cls in owners:
        for node in holder.file.index.attributes_named(held.attr):
            found = _takes_parameter(holder, node) if is_self(node) else None
            if found is not None and holder.file.index.parent(found[1]) is cls:
                yield holder, *found
    for other in live.read.values():
        for node in other.file.index.attributes_named(held.attr):
            found = _takes_parameter(other, node)
            if found is not None and _is_part(live, other, node.value, classes):
                yield other, *found


def _takes_parameter(module: Module, node: ast.Attribute) -> tuple[ast.Assign, FunctionNode] | None:
    """The assignment that gives the attribute a parameter of the method around it."""
    assign = module.file.index.parent(node)
    if not isinstance(assign, ast.Assign) or node not in assign.targets:
        return None
    method = module.file.index.function_of(assign)
    if method is None or method.name == "__init__":
        return None
    if isinstance(assign.value, ast.Name) and assign.value.id in _parameters(method):
        return assign, method
    return None


def _is_part(live: Live, module: Module, part: ast.expr, classes: list[ast.ClassDef]) -> bool:
    """Is it `self.part`, which the class around it makes of one of the classes?"""
    if not isinstance(part, ast.Attribute):
        return False
    owner = module.file.index.class_of(part)
    made = module.file.bindings.attribute(owner, part.attr) if is_self(part) and owner is not None else None
    if not isinstance(made, ast.Call):
        return False
    found = live.modules.resolve(module, dotted_name(made.func)) if dotted_name(made.func) else None
    return found is not None and found[1] in classes


def passes_its_own(module: Module, call: ast.Call, given: ast.expr, function: FunctionNode) -> bool:
    """Does a function of the same name hand a parameter of its own on: `self.parts.enable(flag)` in `enable(self, flag)`?"""
    outer = module.file.index.function_of(call)
    derived = function.name == "__init__" or text_of(call.func).startswith("super(")
    return (
        outer is not None
        and outer.name == function.name
        and not derived  # the call of another class
        and isinstance(given, ast.Name)
        and given.id in _parameters(outer)
    )


def _parameters(function: FunctionNode) -> frozenset[str]:
    arguments = function.args
    return frozenset(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _calls_by_alias(module: Module, node: ast.AST) -> Iterator[ast.Call]:
    """`make = Loader if ready else Other` and `make(...)`"""
    index = module.file.index
    parent = index.parent(node)
    while isinstance(parent, (ast.IfExp, ast.BoolOp)):
        parent = index.parent(parent)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    if isinstance(target, ast.Name):
        scope = index.function_of(target)
        for call in module.file.calls.calls_in(scope) if scope is not None else ():
            if isinstance(call.func, ast.Name) and call.func.id == target.id:
                yield call


def _is_static(function: FunctionNode) -> bool:
    return any(dotted_name(d) == "staticmethod" for d in function.decorator_list)
