"""Names and attributes: every place that gives one a value."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from ptopt.source.index import FunctionNode, Index

_by_line = attrgetter("line")
_by_place = attrgetter("line", "column")
_FILLING = frozenset("append extend insert update add pop clear setdefault remove".split())


class Binding(NamedTuple):
    """One place that gives a name its value."""

    line: int
    column: int
    kind: str  # "assign" | "augment" | "item" (of an iterable) | "unpack" | "parameter" | "opaque"
    value: ast.expr | None
    node: ast.AST
    path: tuple[int, ...] = ()  # where the target stands in an unpacking: (1, 0) is `x` of `i, (x, y)`


class Bindings:
    """The bindings of one file, collected when first asked for."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._tables: dict[FunctionNode | None, dict[str, list[Binding]]] | None = None
        self._assigned: dict[tuple[FunctionNode | None, str], Binding | None] = {}
        self._attributes: dict[ast.ClassDef, dict[str, ast.expr]] | None = None

    def of(self, function: FunctionNode | None, name: str) -> list[Binding]:
        """Every binding of `name` in the function itself (None: module level), in source order."""
        if self._tables is None:
            self._tables = self._bind_all()
        return self._tables.get(function, {}).get(name, [])

    def inside(self, function: FunctionNode | None, name: str, container: ast.AST) -> list[Binding]:
        """The bindings of `name` in the function that stand in `container`, a part of it."""
        found = self.of(function, name)
        first, last = container.lineno, container.end_lineno or 0  # type: ignore[attr-defined]
        start = bisect_left(found, first, key=_by_line)
        stop = bisect_right(found, last, key=_by_line)
        return [b for b in found[start:stop] if self._index.within(b.node, container)]

    def is_filled_in(self, name: str, container: ast.AST) -> bool:
        """Does code in `container` change the object that the name holds: `x[i] = ...`, `x.append(...)`, `x.add_(...)`?"""
        return any(
            held.id == name and self._index.within(held, container) for held in self._filled.get(name, ())
        )

    @cached_property
    def _filled(self) -> dict[str, list[ast.Name]]:
        table: dict[str, list[ast.Name]] = {}
        for part in self._index.of_type(ast.Subscript):
            if not isinstance(part.ctx, ast.Load):
                held: ast.expr = part
                while isinstance(held, (ast.Subscript, ast.Attribute)):
                    held = held.value
                if isinstance(held, ast.Name):
                    table.setdefault(held.id, []).append(held)
        for call in self._index.of_type(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                in_place = func.attr.endswith("_") and not func.attr.endswith("__")
                if in_place or func.attr in _FILLING:
                    table.setdefault(func.value.id, []).append(func.value)
        return table

    def first_assigned(self, function: FunctionNode | None, name: str) -> Binding | None:
        """The first plain assignment to `name` in the function itself."""
        if (function, name) not in self._assigned:
            assigned = (b for b in self.of(function, name) if b.kind == "assign" and b.value is not None)
            self._assigned[function, name] = next(assigned, None)
        return self._assigned[function, name]

    def last_before(self, name: ast.Name) -> Binding | None:
        """The last binding before the use, in the innermost function that binds the name."""
        function = self._index.function_of(name)
        at = (name.lineno, name.col_offset)
        while True:
            found = self.of(function, name.id)
            if found:
                last = bisect_left(found, at, key=_by_place)
                before = (b for b in reversed(found[:last]) if not self._is_made_by(name, b))
                return next(before, found[0])
            if function is None:
                return None
            function = self._index.function_of(function)

    def _is_made_by(self, name: ast.Name, binding: Binding) -> bool:
        """Does the use stand in what gives the binding its value? The body of a loop does not."""
        node = binding.node
        made_of = node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else node
        return self._index.within(name, made_of)

    def _bind_all(self) -> dict[FunctionNode | None, dict[str, list[Binding]]]:
        """Every binding of the file, by function and name."""
        index = self._index
        tables: dict[FunctionNode | None, dict[str, list[Binding]]] = {}
        for function in index.of_type(ast.FunctionDef, ast.AsyncFunctionDef):
            args = function.args
            table = tables.setdefault(function, {})
            for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                table[arg.arg] = [Binding(arg.lineno, arg.col_offset, "parameter", arg.annotation, arg)]
        for owner, assign in index.functions_of(
            index.of_type(ast.Assign)
        ):  # in source order, so these bindings are
            value, first = assign.value, assign.targets[0]
            if (first.__class__ is ast.Attribute and len(assign.targets) == 1) or (
                index.parent(assign).__class__ is ast.ClassDef
            ):
                continue  # it binds no name of a function
            table = tables.setdefault(owner, {})
            for target in assign.targets:
                if target.__class__ is ast.Name:  # as most
                    made = Binding(target.lineno, target.col_offset, "assign", value, assign)
                    table.setdefault(target.id, []).append(made)
                else:
                    for name, made in _bound(target, "assign", value, assign):
                        table.setdefault(name, []).append(made)
        mixed: dict[int, list[Binding]] = {}
        for node, target, kind, given in self._other_targets():
            table = tables.setdefault(index.function_of(node), {})
            for name, made in _bound(target, kind, given, node):
                found = table.setdefault(name, [])
                found.append(made)
                mixed[id(found)] = found
        for found in mixed.values():
            found.sort(key=_by_place)
        return tables

    def _other_targets(self) -> Iterator[tuple[ast.AST, ast.expr, str, ast.expr | None]]:
        """(node that binds, target, kind of binding, value) of what is no plain assignment; class attributes left out."""
        index = self._index
        for single in index.of_type(ast.AnnAssign, ast.NamedExpr):
            if not isinstance(index.parent(single), ast.ClassDef):
                yield single, single.target, "assign", single.value
        for augmented in index.of_type(ast.AugAssign):
            yield augmented, augmented.target, "augment", augmented.value
        for loop in index.of_type(ast.For, ast.AsyncFor, ast.comprehension):
            yield loop, loop.target, "item", loop.iter
        for block in index.of_type(ast.With, ast.AsyncWith):
            for item in block.items:
                if item.optional_vars is not None:
                    yield block, item.optional_vars, "opaque", None

    def assigned(self, expr: ast.AST | None) -> ast.expr | None:
        """What a name was last given, when that is one assignment; None also for what is no name."""
        binding = self.last_before(expr) if isinstance(expr, ast.Name) else None
        return binding.value if binding is not None and binding.kind == "assign" else None

    def attribute(self, cls: ast.ClassDef, name: str) -> ast.expr | None:
        """The expression assigned to `self.name`, first in `__init__`, else anywhere in the class."""
        if self._attributes is None:
            self._attributes = {}
            assigned: list[tuple[bool, ast.Attribute, ast.Assign]] = []
            for assign in self._index.of_type(ast.Assign):
                for target in assign.targets:
                    if isinstance(target, ast.Attribute) and is_self(target):
                        function = self._index.function_of(assign)
                        assigned.append((function is None or function.name != "__init__", target, assign))
            for _, target, assign in sorted(assigned, key=lambda a: a[0]):
                owner = self._index.class_of(assign)
                if owner is not None:
                    self._attributes.setdefault(owner, {}).setdefault(target.attr, assign.value)
        return self._attributes.get(cls, {}).get(name)

    def declared(self, cls: ast.ClassDef, name: str) -> ast.expr | None:
        """The annotation of an attribute: `name: Tensor` in the class, or `self.name: Tensor = value`."""
        return self._declared.get(cls, {}).get(name)

    @cached_property
    def _declared(self) -> dict[ast.ClassDef, dict[str, ast.expr]]:
        table: dict[ast.ClassDef, dict[str, ast.expr]] = {}
        for statement in self._index.of_type(ast.AnnAssign):
            target, owner = statement.target, self._index.parent(statement)
            if isinstance(target, ast.Attribute) and is_self(target):
                owner = self._index.class_of(statement)
            elif not isinstance(target, ast.Name):
                continue
            if isinstance(owner, ast.ClassDef):
                name = target.id if isinstance(target, ast.Name) else target.attr
                table.setdefault(owner, {}).setdefault(name, statement.annotation)
        return table


def _bound(
    target: ast.expr, kind: str, value: ast.expr | None, node: ast.AST, path: tuple[int, ...] = ()
) -> Iterator[tuple[str, Binding]]:
    """The names that a target binds, with what they get."""
    if isinstance(target, ast.Name):
        yield target.id, Binding(target.lineno, target.col_offset, kind, value, node, path)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, "opaque", None, node)
    elif isinstance(target, (ast.Tuple, ast.List)):
        pairs = value.elts if isinstance(value, (ast.Tuple, ast.List)) and kind == "assign" else []
        for i, element in enumerate(target.elts):
            if len(pairs) == len(target.elts):
                yield from _bound(element, "assign", pairs[i], node)
            else:
                yield from _bound(element, "unpack" if kind == "assign" else kind, value, node, (*path, i))


def is_self(node: ast.expr) -> bool:
    """Is it `self.name`?"""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
