"""Names and attributes: every place that gives one a value."""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ptopt.source.index import FunctionNode, Index

if TYPE_CHECKING:
    from ptopt.source.uses import Uses

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
    """The bindings of one file, those of each name collected when it is first asked for."""

    def __init__(self, index: Index, uses: Uses) -> None:
        self._index = index
        self._uses = uses
        self._by_name: dict[str, dict[FunctionNode | None, list[Binding]]] = {}
        self._known: dict[tuple[FunctionNode | None, str], list[Binding]] = {}
        self._assigned: dict[tuple[FunctionNode | None, str], Binding | None] = {}
        self._attributes: dict[ast.ClassDef, dict[str, ast.expr]] | None = None

    def of(self, function: FunctionNode | None, name: str) -> list[Binding]:
        """Every binding of `name` in the function itself (None: module level), in source order."""
        found = self._known.get((function, name))
        if found is None:
            found = self._known[function, name] = self._find(function, name)
        return found

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

    def _find(self, function: FunctionNode | None, name: str) -> list[Binding]:
        by_function = self._by_name.get(name)
        if by_function is None:
            by_function = self._by_name[name] = self._bindings_of(name)
        found = by_function.get(function, [])
        if function is not None:
            args = function.args
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                if arg.arg == name:
                    given = Binding(arg.lineno, arg.col_offset, "parameter", arg.annotation, arg)
                    return sorted([given, *found], key=_by_place)
        return found

    def _bindings_of(self, name: str) -> dict[FunctionNode | None, list[Binding]]:
        """Every binding of the name in the file, by function, but for parameters. Most names are never asked for."""
        table: dict[FunctionNode | None, list[Binding]] = {}
        targets: dict[ast.AST, tuple[str, ast.expr | None, ast.AST]] = {}
        for stored in self._uses.stored(name):
            if stored.ctx.__class__ is ast.Store:
                target, node = self._target_around(stored)
                given = self._given_by(node)
                if given is not None:
                    targets[target] = given
        for target, (kind, value, node) in targets.items():
            for bound, binding in _bound(target, kind, value, node):  # type: ignore[arg-type]
                if bound == name:
                    table.setdefault(self._index.function_of(node), []).append(binding)
        for found in table.values():
            if len(found) > 1:
                found.sort(key=_by_place)
        return table

    def _target_around(self, stored: ast.Name) -> tuple[ast.AST, ast.AST | None]:
        """The whole target that the name is, or is a part of, and what it is the target of."""
        target: ast.AST = stored
        node = self._index.parent(stored)
        while isinstance(node, (ast.Tuple, ast.List, ast.Starred)):
            target, node = node, self._index.parent(node)
        return target, node

    def _given_by(self, node: ast.AST | None) -> tuple[str, ast.expr | None, ast.AST] | None:
        """(kind of binding, value, node that binds) of what has a target; None for class attributes."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            of_class = isinstance(self._index.parent(node), ast.ClassDef)
            return None if of_class else ("assign", node.value, node)
        if isinstance(node, ast.AugAssign):
            return "augment", node.value, node
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            return "item", node.iter, node
        block = self._index.parent(node) if isinstance(node, ast.withitem) else None
        return ("opaque", None, block) if block is not None else None

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
