"""What a function, class or module mentions, collected once for all scripts of a repository."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from ptopt.audit.modules import Module, Modules, dotted_name
from ptopt.source.calls import called_name
from ptopt.source.index import CODE_FIELDS, FUNCTIONS, is_main_test

DYNAMIC = frozenset({"import_module", "instantiate", "instantiate_from_config", "get_class", "locate", "get_obj_from_str",
                      "exec_module", "build_from_cfg", "getmembers"})  # fmt: skip
_BY_NAME = DYNAMIC | {"eval", "getattr"}
Site = tuple[Module, ast.AST]


@dataclass
class Summary:
    """What a piece of code mentions: dotted names with their nodes, attributes, calls."""

    names: list[tuple[str, ast.AST]] = field(default_factory=list)
    attributes: list[tuple[str, ast.AST]] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
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
        return self._reached

    _mentioned: dict[str, list[Site]] | None = None
    _reached: list[tuple[Module, ast.AST | None, Site]] | None = None


Summaries = dict[ast.AST, Summary]
"""Of functions, classes and modules; shared by all scripts of a repository."""


def summarise(unit: ast.AST) -> Summary:
    """Of a module or class without the bodies of its functions; of a function with those nested in it."""
    whole = isinstance(unit, FUNCTIONS)
    summary = Summary()
    stack: list[ast.AST] = list(reversed(_parts(unit)))
    while stack:
        node = stack.pop()
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
        below: list[ast.AST] = []
        for name in CODE_FIELDS[node.__class__]:
            child = getattr(node, name, None)
            if child.__class__ is list:
                below += [element for element in child if element is not None]
            elif child is not None:
                below.append(child)
        stack += below[::-1]
    return summary


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
