"""What the attributes of an object hold: given in `__init__`, by a method, or from outside."""

from __future__ import annotations

import ast
from dataclasses import replace

from ptopt.audit.calling import handed_on, lineage
from ptopt.audit.known import Value
from ptopt.audit.modules import Module
from ptopt.audit.parameters import Parameters
from ptopt.source.bindings import is_self


class Attributes(Parameters):
    """Of the classes that one entry point runs."""

    def _self_attribute(self, expr: ast.Attribute, module: Module, depth: int) -> Value:
        held = self.held(expr, module)
        if held is not None:
            if _changes(*held, expr.attr):
                return self._unknown(expr, module)
            later = self._set_from_outside(expr, depth) or self._set_by_method(expr, module, held[1], depth)
            return later if later is not None else self.of(held[1], held[0], depth)
        return self._option(expr.attr, expr, module, depth)

    def _set_by_method(
        self, expr: ast.Attribute, module: Module, first: ast.expr, depth: int
    ) -> Value | None:
        """`def enable(self, flag=True): self.flag = flag`: what its calls give it; None where it has none."""
        if not isinstance(first, ast.Constant) or not isinstance(first.value, bool):
            return None
        never: Value | None = None
        for holder, assign, method in handed_on(self.live, module, expr):
            given = self.of(assign.value, holder, depth)
            if not self.live.runs(holder, assign) or (given.known and bool(given.value) is first.value):
                continue
            runs = self.runs(assign, holder, depth + 1)
            if runs.truth is None:
                return replace(runs, choices=(), passed=())
            called = self._called(method, holder, depth + 1)
            if runs.truth:
                return replace(given, note=called.note or given.note, place=called.place or given.place)
            never = never or called
        if never is None or not never.note:
            return None
        return Value(True, first.value, never.note, never.place)

    def _set_from_outside(self, expr: ast.Attribute, depth: int) -> Value | None:
        """`for layer in layers: layer.flag = flag`: what such an assignment gives `self.flag`, where one class alone has it."""
        owners: set[ast.ClassDef | None] = set()
        given: list[tuple[Module, ast.expr]] = []
        for module in self.live.read.values():
            for node in module.file.index.attributes_named(expr.attr):
                assign = module.file.index.parent(node)
                if not isinstance(assign, ast.Assign) or node not in assign.targets:
                    continue
                if is_self(node):
                    owners.add(module.file.index.class_of(node))
                elif (
                    isinstance(node.value, ast.Name)
                    and _is_item(module, node.value)
                    and self.live.runs(module, node)
                    and self.runs(node, module).truth is True
                ):
                    given.append((module, assign.value))
        if len(owners) != 1 or len(given) != 1:
            return None
        return self.of(given[0][1], given[0][0], depth)

    def held(self, expr: ast.Attribute, module: Module) -> tuple[Module, ast.expr] | None:
        """What `self.name` is given in its class or in one that it derives from, in an `__init__` if one does."""
        later: tuple[Module, ast.expr] | None = None
        for holder, owner in lineage(self.live, module, module.file.index.class_of(expr)):
            value = holder.file.bindings.attribute(owner, expr.attr)
            if value is None:
                continue
            method = holder.file.index.function_of(value)
            if method is None or method.name == "__init__":
                return holder, value
            later = later or (holder, value)
        return later


def _changes(module: Module, first: ast.expr, name: str) -> bool:
    """Is `self.name` a counter, or nothing until a method gives it something?"""
    if not isinstance(first, ast.Constant):
        return False
    cls = module.file.index.class_of(first)
    if first.value is None:
        return any(
            isinstance(assign := module.file.index.parent(node), ast.Assign)
            and node in assign.targets
            and assign.value is not first
            and module.file.index.class_of(node) is cls
            for node in module.file.index.attributes_named(name)
        )
    return isinstance(first.value, int) and any(
        isinstance(each.target, ast.Attribute)
        and each.target.attr == name
        and module.file.index.class_of(each) is cls
        for each in module.file.index.of_type(ast.AugAssign)
    )


def _is_item(module: Module, name: ast.Name) -> bool:
    """Is it one of the things that a loop goes through?"""
    binding = module.file.bindings.last_before(name)
    return binding is not None and isinstance(binding.node, ast.For)
