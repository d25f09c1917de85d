"""What a function, class or module mentions, collected once for all scripts of a repository."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ptopt.audit.modules import Module, Modules, dotted_name
from ptopt.source.calls import called_name
from ptopt.source.index import CODE_FIELDS, FUNCTIONS, is_main_test

DYNAMIC = frozenset({"import_module", "instantiate", "instantiate_from_config", "get_class", "locate", "get_obj_from_str",
                      "exec_module", "build_from_cfg", "getmembers"})  # fmt: skip
_BY_NAME = DYNAMIC | {"eval", "getattr"}
_WRAPS = frozenset({"partial", "staticmethod", "classmethod", "property"})
_CLASS_ASKED = {
    "isinstance": 1,
    "issubclass": 1,
    "cast": 0,
}  # which argument names a class without making one
Site = tuple[Module, ast.AST]


@dataclass(eq=False)
class Held:
    """What variables of a module, or attributes of a class, hold without a call of it: `LOADERS = {"pile": make_pile}`.

    It runs where the variable is read, if anywhere.
    """

    variables: tuple[str, ...]
    of: str  # the object whose attribute it is; "" of a variable
    parts: tuple[ast.expr, ...]
    summary: Summary


@dataclass
class Summary:
    """What a piece of code mentions: dotted names with their nodes, attributes, calls."""

    names: list[tuple[str, ast.AST]] = field(default_factory=list)
    attributes: list[tuple[str, ast.AST]] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    annotations: list[tuple[str, ast.AST]] = field(default_factory=list)  # dotted names in those of functions
    held: list[Held] = field(default_factory=list)  # of a module
    imported: Summary | None = None  # of a module: without its main block

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

    def mentioned(self, module: Module, modules: Modules) -> dict[str, list[Site]]:
        """The attributes by name, each with where it stands; not those of packages of others, such as `re.compile`."""
        if self._mentioned is None:
            self._mentioned = {}
            for name, node in self.attributes:
                if not modules.is_of_others(module, dotted_name(node).partition(".")[0]):
                    self._mentioned.setdefault(name, []).append((module, node))
        return self._mentioned

    def reached(self, module: Module, modules: Modules) -> list[tuple[Module, ast.AST | None, Site]]:
        """The definitions and modules of the repository that the names mean, each with where it is named."""
        if self._reached is None:
            self._reached = [
                (*found, (module, node))
                for name, node in self.names
                if (found := modules.resolve(module, name)) is not None
            ]
            self._reached += [
                (*found, (module, node))
                for name, node in self.annotations
                if (found := modules.resolve(module, name)) is not None and _has_fields(found[1])
            ]
        return self._reached

    _mentioned: dict[str, list[Site]] | None = None
    _reached: list[tuple[Module, ast.AST | None, Site]] | None = None


def _is_target(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def _has_fields(definition: ast.AST | None) -> bool:
    """A class of settings, which a parser makes of an annotation alone; objects of others are made where they are named."""
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return any(isinstance(part, ast.AnnAssign) for part in body) and not any(
        isinstance(part, FUNCTIONS) and part.name == "forward" for part in body
    )


Summaries = dict[ast.AST, Summary]
"""Of functions, classes and modules; shared by all scripts of a repository."""


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
