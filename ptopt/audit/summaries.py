"""What a function, class or module mentions, collected once for all scripts of a repository."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ptopt.audit.modules import Module, Modules, dotted_name
from ptopt.audit.registries import Registered, registered
from ptopt.source.calls import called_name
from ptopt.source.index import CODE_FIELDS, FUNCTIONS, FunctionNode, is_main_test

DYNAMIC = frozenset({"import_module", "instantiate", "instantiate_from_config", "get_class", "locate", "get_obj_from_str",
                      "exec_module", "build_from_cfg", "getmembers"})  # fmt: skip
_BY_NAME = DYNAMIC | {"eval", "getattr"}
_CLASS_NAME = re.compile(r"_?[A-Z]")
_WRAPS = frozenset({"partial", "staticmethod", "classmethod", "property"})
_CLASS_ASKED = {
    "isinstance": 1,
    "issubclass": 1,
    "cast": 0,
}  # which argument names a class without making one
Site = tuple[Module, ast.AST]
T = TypeVar("T")
_MODULE_HOOKS = frozenset({"forward", "backward", "step", "get", "len", "process"})
_MODULE_BASES = re.compile(
    r"(^|\.)(Module|ModuleDict|ModuleList|Sequential|Dataset|IterableDataset|Sampler|BatchSampler|Function|Optimizer|object|"
    r"ABC|Protocol)$"
)


@dataclass(eq=False)
class Held:
    """What variables of a module, or attributes of a class, hold without a call of it: `LOADERS = {"pile": make_pile}`.

    It runs where the variable is read, if anywhere.
    """

    variables: tuple[str, ...]
    of: str  # the object whose attribute it is; "" of a variable
    parts: tuple[ast.expr, ...]
    summary: Summary


@dataclass(eq=False)
class Summary:
    """What a piece of code mentions: dotted names with their nodes, attributes, calls."""

    names: list[tuple[str, ast.AST]] = field(default_factory=list)
    attributes: list[tuple[str, ast.AST]] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    annotations: list[tuple[str, ast.AST]] = field(default_factory=list)  # dotted names in those of functions
    held: list[Held] = field(default_factory=list)  # of a module
    imported: Summary | None = None  # of a module: without its main block
    entered: bool = False  # what follows is known
    definitions: dict[object, tuple[Module, ast.AST | None]] = field(default_factory=dict)
    """The definitions and modules of the repository that the names mean, by themselves and by path, in their order."""
    sites: dict[object, list[Site]] = field(default_factory=dict)  # where each definition is named
    mentioned: dict[str, list[Site]] = field(default_factory=dict)
    """The attributes by name, each with where it stands; not those of packages of others, such as `re.compile`."""

    @cached_property
    def cost(self) -> int:
        return len(self.names) + len(self.calls)

    @cached_property
    def reached(self) -> frozenset[object]:
        return frozenset(self.definitions)

    @cached_property
    def mentions(self) -> frozenset[str]:
        return frozenset(self.mentioned)

    @property
    def looks_up(self) -> bool:
        """Does it take things from a table of all names?"""
        return "__dict__" in self.mentioned

    @cached_property
    def called(self) -> frozenset[str]:
        """The last names of what is called."""
        return frozenset(map(called_name, self.calls))

    @cached_property
    def special(self) -> list[ast.Call]:
        """The calls that may find code by a name."""
        return (
            [] if _BY_NAME.isdisjoint(self.called) else [c for c in self.calls if called_name(c) in _BY_NAME]
        )

    @cached_property
    def variables(self) -> frozenset[str]:
        """What may be a variable of a module that is read here; `table.__doc__ = text` reads none."""
        read = (name.partition(".")[0] for name, node in self.names if not _is_target(node))
        return frozenset([*read, *(name for name, node in self.attributes if not _is_target(node))])

    def found(
        self, compute: Callable[[Module, ast.Call], T | None], module: Module
    ) -> list[tuple[ast.Call, T]]:
        """What `compute` finds in the calls: computed once for all scripts, on which it must not depend."""
        if compute not in self._found:
            each = ((call, compute(module, call)) for call in self.calls)
            self._found[compute] = [pair for pair in each if pair[1] is not None]
        known: list[tuple[ast.Call, T]] = self._found[compute]
        return known

    def by_name(self, module: Module) -> dict[str, list[ast.Call]]:
        """The calls by the last name of what is called, as its package spells it."""
        if self._by_name is None:
            self._by_name = {}
            for call in self.calls:
                self._by_name.setdefault(_spelled(module, call.func), []).append(call)
        return self._by_name

    _found: dict[Callable[[Module, ast.Call], Any], list[Any]] = field(default_factory=dict)
    _by_name: dict[str, list[ast.Call]] | None = None


@dataclass(frozen=True, slots=True)
class Members:
    """Of a class: its methods, and which of them Python or a framework calls."""

    methods: list[FunctionNode]
    hooks: list[bool]


class Summaries:
    """Of functions, classes and modules, and what mentions a thing; shared by all scripts of a repository."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._units: dict[ast.AST, Summary] = {}
        self._members: dict[ast.ClassDef, Members] = {}
        self._imports: dict[str, list[str]] = {}
        self._registered: dict[str, list[Registered]] = {}
        self.naming: defaultdict[ast.AST, list[Summary]] = defaultdict(list)  # definition -> what names it
        self.mentioning: defaultdict[str, list[Summary]] = defaultdict(list)  # attribute -> what names it
        self.calling: defaultdict[str, list[Summary]] = defaultdict(list)  # last name -> what calls it

    def of(self, module: Module, unit: ast.AST, imported: bool) -> Summary:
        """Of a module that is only imported, its main block does not run."""
        known = self._units.get(unit)
        if known is None:
            known = self._units[unit] = summarise(unit)
        if imported and isinstance(unit, ast.Module):
            if known.imported is None:
                known.imported = _without_main(unit, known)
            known = known.imported
        return self.entered(module, known)

    def entered(self, module: Module, summary: Summary) -> Summary:
        """The summary, with what it mentions in the tables."""
        if not summary.entered:
            summary.entered = True
            self._enter(module, summary)
        return summary

    def _enter(self, module: Module, summary: Summary) -> None:
        for pairs, is_annotation in ((summary.names, False), (summary.annotations, True)):
            for name, node in pairs:
                found = self._modules.resolve(module, name)
                if found is None or (is_annotation and not _has_fields(found[1])):
                    continue
                key: object = found[1] or found[0].path
                summary.definitions.setdefault(key, found)
                summary.sites.setdefault(key, []).append((module, node))
        for name, node in summary.attributes:
            if not self._modules.is_of_others(module, dotted_name(node).partition(".")[0]):
                summary.mentioned.setdefault(name, []).append((module, node))
        for key in summary.definitions:
            if isinstance(key, ast.AST):
                self.naming[key].append(summary)
        for name in summary.mentioned:
            self.mentioning[name].append(summary)
        for name in summary.called:
            self.calling[name].append(summary)

    def members(self, module: Module, cls: ast.ClassDef) -> Members:
        known = self._members.get(cls)
        if known is None:
            called_by_others = any(
                not _MODULE_BASES.search(name)
                for base in cls.bases
                if (name := dotted_name(base)) and self._modules.resolve(module, name) is None
            )
            methods = [statement for statement in cls.body if isinstance(statement, FUNCTIONS)]
            hooks = [called_by_others or is_hook(method.name) for method in methods]
            known = self._members[cls] = Members(methods, hooks)
        return known

    def imports(self, module: Module) -> list[str]:
        """The files of the repository that a module imports."""
        known = self._imports.get(module.path)
        if known is None:
            paths = [path for one in module.imports for path in self._paths(module, *one)]
            known = self._imports[module.path] = list(dict.fromkeys(paths))
        return known

    def registered(self, module: Module) -> list[Registered]:
        """What decorators of a module put into tables."""
        if module.path not in self._registered:
            self._registered[module.path] = registered(self._modules, module)
        return self._registered[module.path]

    def _paths(self, module: Module, level: int, name: str, names: tuple[str, ...]) -> list[str]:
        found = [self._modules.find(name, level, module.path)]
        if found[0] is None or found[0].endswith("__init__.py"):
            found += [
                self._modules.find(f"{name}.{each}" if name else each, level, module.path) for each in names
            ]
        return [path for path in found if path is not None and path != module.path]


def is_hook(name: str) -> bool:
    """Is a method of this name called by Python or a framework?"""
    return (name.startswith("__") and name.endswith("__")) or name in _MODULE_HOOKS


def _is_target(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def _has_fields(definition: ast.AST | None) -> bool:
    """A class of settings, which a parser makes of an annotation alone; objects of others are made where they are named."""
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return any(isinstance(part, ast.AnnAssign) for part in body) and not any(
        isinstance(part, FUNCTIONS) and part.name == "forward" for part in body
    )


def _without_main(tree: ast.Module, summary: Summary) -> Summary:
    main = main_block(tree)
    if main is None:
        return summary
    inside = {id(node) for node in ast.walk(main)}
    return Summary(
        [n for n in summary.names if id(n[1]) not in inside],
        [a for a in summary.attributes if id(a[1]) not in inside],
        [c for c in summary.calls if id(c) not in inside],
        [a for a in summary.annotations if id(a[1]) not in inside],
        [h for h in summary.held if id(h.parts[0]) not in inside],
    )


def _spelled(module: Module, func: ast.expr) -> str:
    """The last name of what is called; that of its package where an import has renamed it."""
    if isinstance(func, ast.Attribute):
        return func.attr
    name = func.id if isinstance(func, ast.Name) else ""
    return module.imported[name][2] or name if name in module.imported else name


def summarise(unit: ast.AST) -> Summary:
    """Of a module or class without the bodies of its functions; of a function with those nested in it."""
    return _summary(_parts(unit), unit)


def _summary(parts: Iterable[ast.AST], unit: ast.AST) -> Summary:
    whole = not isinstance(unit, (ast.Module, ast.ClassDef))
    summary = Summary()
    stack: list[ast.AST] = list(reversed([*parts]))
    apart: set[ast.AST] = set()  # what runs elsewhere
    while stack:
        node = stack.pop()
        if node in apart:
            continue
        if isinstance(node, FUNCTIONS) and not whole:
            stack += [
                *node.decorator_list,
                *(d for d in node.args.defaults),
                *(d for d in node.args.kw_defaults if d),
            ]
            continue
        if isinstance(node, ast.ClassDef) and not whole:
            stack += node.decorator_list
            continue
        if isinstance(node, ast.Attribute):
            summary.attributes.append((node.attr, node))
            name = dotted_name(node)
            if name:
                summary.names.append((name, node))
                inner: ast.AST = node.value
                while isinstance(inner, ast.Attribute):
                    summary.attributes.append((inner.attr, inner))
                    inner = inner.value
                continue
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                summary.names.append((node.id, node))
            continue
        elif isinstance(node, ast.Call):
            summary.calls.append(node)
            apart.update(_classes_asked_for(node))
        elif isinstance(node, ast.Compare):
            apart.update(_classes_compared(node))
        elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation and not _is_class(unit):
            apart.add(node.annotation)
            summary.annotations += _summary([node.annotation], node).names
        if isinstance(unit, ast.Module) and (assigned := _assigned(node)) is not None:
            variables, of, value = assigned
            if held := tuple(_only_named(value)):
                apart.update(held)
                summary.held.append(Held(variables, of, held, _summary(held, node)))
        below: list[ast.AST] = []
        for name in CODE_FIELDS[node.__class__]:
            child = getattr(node, name, None)
            if child.__class__ is list:
                below += [element for element in child if element is not None]
            elif child is not None:
                below.append(child)
        stack += below[::-1]
    return summary


def _is_class(unit: ast.AST) -> bool:
    return isinstance(unit, ast.ClassDef)


def _classes_asked_for(call: ast.Call) -> list[ast.expr]:
    """Of `isinstance(model, Net)`: `Net`, an object of which somebody else makes."""
    at = _CLASS_ASKED.get(called_name(call))
    given = call.args[at] if at is not None and at < len(call.args) else None
    each = given.elts if isinstance(given, ast.Tuple) else [given]
    return [part for part in each if isinstance(part, (ast.Name, ast.Attribute))]


def _classes_compared(test: ast.Compare) -> Iterator[ast.expr]:
    """Of `kind is Net` and `kind in [Net, Other]` the classes: what the other side is, somebody else says."""
    for asked, side in zip(test.ops, test.comparators, strict=True):
        if isinstance(asked, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            named = [side]
        elif isinstance(asked, (ast.In, ast.NotIn)) and isinstance(side, (ast.List, ast.Tuple, ast.Set)):
            named = side.elts
        else:
            continue
        yield from (
            part
            for part in named
            if isinstance(part, (ast.Name, ast.Attribute))
            and _CLASS_NAME.match(dotted_name(part).rpartition(".")[2])
        )


def _assigned(node: ast.AST) -> tuple[tuple[str, ...], str, ast.expr] | None:
    """The names that are assigned to, whose attributes they are, and the value; None where it is no such statement.

    `X = value`, `Net.load = value` and `setattr(Net, "load", value)`.
    """
    if isinstance(node, ast.Call) and called_name(node) == "setattr" and len(node.args) == 3:
        holder, name, value = node.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and (of := dotted_name(holder)):
            return (name.value,), of, value
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(targets) == 1 and isinstance(target := targets[0], ast.Attribute):
        return ((target.attr,), of, node.value) if (of := dotted_name(target.value)) else None
    names = tuple(target.id for target in targets if isinstance(target, ast.Name))
    return (names, "", node.value) if len(names) == len(targets) else None


def _only_named(value: ast.expr | None) -> Iterator[ast.expr]:
    """The parts of a value that it holds and does not call."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Lambda)):
        yield value
        return
    parts: list[ast.expr | None] = []
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        parts = [*value.elts]
    elif isinstance(value, ast.Dict):
        parts = [*value.keys, *value.values]
    elif isinstance(value, ast.Call) and called_name(value) in _WRAPS:
        parts = [*value.args, *(keyword.value for keyword in value.keywords)]
    for part in parts:
        yield from _only_named(part)


def _parts(unit: ast.AST) -> list[ast.AST]:
    if isinstance(unit, ast.Module):
        return list(unit.body)
    if isinstance(unit, ast.ClassDef):
        return [*unit.decorator_list, *unit.bases, *unit.body]
    if isinstance(unit, FUNCTIONS):
        return [*unit.decorator_list, unit.args, *unit.body]
    return [unit]


def main_block(tree: ast.Module) -> ast.If | None:
    for statement in tree.body:
        if isinstance(statement, ast.If) and is_main_test(statement.test):
            return statement
    return None


def automain(tree: ast.Module) -> FunctionNode | None:
    """`@experiment.automain` of sacred: the function that runs when the file is started, and not when it is imported."""
    for statement in tree.body:
        if isinstance(statement, FUNCTIONS) and any(
            dotted_name(decorator).endswith(".automain") for decorator in statement.decorator_list
        ):
            return statement
    return None
