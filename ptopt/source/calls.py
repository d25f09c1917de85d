"""Functions of one file and who calls whom, as far as names tell."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

from ptopt.source.index import FUNCTIONS, FunctionNode, Index
from ptopt.source.receivers import Receivers

if TYPE_CHECKING:
    from ptopt.source.imports import Imports
    from ptopt.source.uses import Uses


class CallGraph:
    """Calls grouped by the function they run in, and resolved to functions of the same file, when first asked for."""

    def __init__(self, index: Index, receivers: Receivers, uses: Uses, imports: Imports) -> None:
        self._index = index
        self._uses = uses
        self._imports = imports
        self._callers: dict[FunctionNode, list[ast.Call]] = {}
        self._receivers = receivers
        self._plain: dict[str, FunctionNode] = {}
        self._methods: defaultdict[str, list[FunctionNode]] = defaultdict(list)
        self._own: dict[tuple[ast.ClassDef, str], FunctionNode] = {}
        self._tables: dict[ast.ClassDef, dict[str, FunctionNode]] = {}
        self._targets: dict[ast.Call, FunctionNode | None] = {}
        self.functions: tuple[FunctionNode, ...] = tuple(index.of_type(ast.FunctionDef, ast.AsyncFunctionDef))
        for function in self.functions:
            cls = index.parent(function)
            if isinstance(cls, ast.ClassDef):
                self._methods[function.name].append(function)
                self._own.setdefault((cls, function.name), function)
            else:
                self._plain.setdefault(function.name, function)

    @cached_property
    def by_name(self) -> dict[str, list[ast.Call]]:
        """The last part of the dotted name that is called, as the library spells it -> its calls, in source order."""
        table: dict[str, list[ast.Call]] = {}
        aliases = {local: full.rpartition(".")[2] for local, full in self._imports.local_names().items()}
        for call in self._index.of_type(ast.Call):
            func = call.func
            if func.__class__ is ast.Attribute:
                name = func.attr
            elif func.__class__ is ast.Name:
                name = aliases.get(func.id, func.id)
            else:
                continue
            if name in table:
                table[name].append(call)
            else:
                table[name] = [call]
        return table

    def named(self, *names: str) -> list[ast.Call]:
        """The calls of what has one of these names, in source order of each."""
        return [call for name in names for call in self.by_name.get(name, ())]

    @cached_property
    def _calls(self) -> dict[FunctionNode | None, list[ast.Call]]:
        """Function (None: the module) -> the calls that run in it."""
        table: defaultdict[FunctionNode | None, list[ast.Call]] = defaultdict(list)
        for function, call in self._index.functions_of(self._index.of_type(ast.Call)):
            table[function].append(call)
        return table

    def resolve(self, call: ast.Call) -> FunctionNode | None:
        """The function of this file that `call` runs, or None.

        `f()` is a plain function, `self.f()` a method of the same class; `obj.f()` is a method when only one
        class of the file has it, and `obj` may be of that class (see `Receivers`).
        """
        if call not in self._targets:
            self._targets[call] = self._resolved(call)
        return self._targets[call]

    def _resolved(self, call: ast.Call) -> FunctionNode | None:
        func = call.func
        if isinstance(func, ast.Name):
            return self._plain.get(func.id)
        if not isinstance(func, ast.Attribute):
            return None
        methods = self._methods.get(func.attr)
        if not methods:
            return None
        if isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            owner = self._index.class_of(call)
            return self._own.get((owner, func.attr)) if owner is not None else None
        if len(methods) != 1 or func.attr.startswith("__"):
            return None
        holder = self._index.parent(methods[0])
        fits = isinstance(holder, ast.ClassDef) and self._receivers.may_run(call, holder)
        return methods[0] if fits else None

    def calls_in(self, function: FunctionNode | None) -> list[ast.Call]:
        """Calls that run in the function itself (None: at module level), in source order."""
        return self._calls.get(function, [])

    def callers(self, function: FunctionNode) -> list[ast.Call]:
        """The calls of the function in others, in source order."""
        found = self._callers.get(function)
        if found is None:
            in_class = isinstance(self._index.parent(function), ast.ClassDef)
            named = self._index.attributes_named if in_class else self._uses.reads
            found = self._callers[function] = [
                call
                for name in named(function.name)
                if isinstance(call := self._index.parent(name), ast.Call)
                and call.func is name
                and self.resolve(call) is function
                and self._index.function_of(call) is not function
            ]
        return found

    def method(self, cls: ast.ClassDef, name: str) -> FunctionNode | None:
        table = self._tables.get(cls)
        if table is None:
            table = self._tables[cls] = {}
            for stmt in cls.body:
                if isinstance(stmt, FUNCTIONS):
                    table.setdefault(stmt.name, stmt)
        return table.get(name)


def last_name(expr: ast.AST | None) -> str:
    """The last part of a dotted name: `softmax` of `F.softmax`; "" of anything else than a name or an attribute."""
    if expr.__class__ is ast.Attribute:
        return expr.attr
    return expr.id if expr.__class__ is ast.Name else ""


def called_name(call: ast.Call) -> str:
    """The last part of the name that is called: `item` of `loss.detach().item()`."""
    return last_name(call.func)
