"""Of which class of the repository the object is that an option is read from: `config` of `config.amp`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.calling import callers, lineage
from ptopt.audit.known import position_of
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name
from ptopt.audit.options import Option
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS, FunctionNode

_DEEPEST = 5  # calls that hand an object on
_MOST_SITES = 12
_FILLS_ITSELF = re.compile(r"setattr\(|__dict__|parse_args|parse_known_args")
Class = tuple[Module, ast.ClassDef]


class Receivers:
    """Of what one entry point runs."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._parameters: dict[tuple[FunctionNode, str], Class | None] = {}
        self._closed: dict[ast.ClassDef, bool] = {}

    def fields(
        self, options: list[Option], expr: ast.AST, module: Module
    ) -> tuple[list[Option], list[Option]]:
        """Of options of one name those that are a field of the class of the receiver, and the assignments to that field.

        Nothing where the class is not known, or where somebody sets its fields by their names.
        """
        if not isinstance(expr, ast.Attribute) or len(options) < 2:
            return [], []
        fitting = {option.shown.rpartition(" of ")[2] for option in options}
        found = self._class_of(expr.value, module, 0)
        if found is None or f"`{found[1].name}`" not in fitting or not self._is_closed(found[1]):
            return [], []
        holder, cls = found
        fields = [o for o in options if o.path == holder.path and o.shown.endswith(f" of `{cls.name}`")]
        return fields, list(self._stores(expr.attr, cls)) if fields else []

    def _stores(self, name: str, cls: ast.ClassDef) -> Iterator[Option]:
        for module in self._live.read.values():
            for node in module.file.index.attributes_named(name):
                assign = module.file.index.parent(node)
                if not isinstance(assign, ast.Assign) or node not in assign.targets:
                    continue
                if self._live.runs(module, node) and self._is_of(node.value, module, cls):
                    shown = f"`{dotted_name(node)}`"
                    yield Option(name, shown, assign.value, module.path, assign.lineno, "assigned")

    def _is_closed(self, cls: ast.ClassDef) -> bool:
        """Are the fields of its objects set one by one only?"""
        if cls not in self._closed:
            sets = [(m, c.args[0]) for m, c in self._live.calls_named("setattr") if c.args]
            self._closed[cls] = not (
                _FILLS_ITSELF.search(ast.unparse(cls)) or any(self._is_of(node, m, cls) for m, node in sets)
            )
        return self._closed[cls]

    def _is_of(self, expr: ast.expr, module: Module, cls: ast.ClassDef) -> bool:
        found = self._class_of(expr, module, 0)
        return found is not None and found[1] is cls

    def _class_of(self, expr: ast.expr, module: Module, depth: int) -> Class | None:
        if depth > _DEEPEST:
            return None
        if isinstance(expr, ast.Call):
            plain = not expr.args and all(keyword.arg is not None for keyword in expr.keywords)
            return self._named(expr.func, module) if plain else None
        if isinstance(expr, ast.Attribute) and is_self(expr):
            for holder, owner in lineage(self._live, module, module.file.index.class_of(expr)):
                value = holder.file.bindings.attribute(owner, expr.attr)
                if value is not None:
                    return self._class_of(value, holder, depth + 1)
            return None
        return self._of_name(expr, module, depth) if isinstance(expr, ast.Name) else None

    def _named(self, expr: ast.expr | None, module: Module) -> Class | None:
        if isinstance(expr, ast.Constant) and isinstance(expr.value, str):
            name = expr.value
        else:
            name = "" if expr is None else dotted_name(expr)
        found = self._live.modules.resolve(module, name) if name else None
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None

    def _of_name(self, name: ast.Name, module: Module, depth: int) -> Class | None:
        scope = module.file.index.function_of(name)
        while not (found := module.file.bindings.of(scope, name.id)) and scope is not None:
            scope = module.file.index.function_of(scope)
        classes = []
        for binding in found:
            if binding.kind == "parameter" and isinstance(scope, FUNCTIONS):
                classes.append(self._of_parameter(scope, name.id, module, depth))
            elif binding.kind == "assign" and binding.value is not None:
                classes.append(self._class_of(binding.value, module, depth + 1))
            else:
                return None
        return _same(classes)

    def _of_parameter(self, function: FunctionNode, name: str, module: Module, depth: int) -> Class | None:
        key = function, name
        if key not in self._parameters:
            self._parameters[key] = None  # a circle of calls ends here
            self._parameters[key] = self._given(function, name, module, depth)
        return self._parameters[key]

    def _given(self, function: FunctionNode, name: str, module: Module, depth: int) -> Class | None:
        every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        annotated = self._named(next((a.annotation for a in every if a.arg == name), None), module)
        if annotated is not None:
            return annotated
        position = position_of(function, name)
        classes: list[Class | None] = []
        for other, call, shift in callers(self._live, function, module):
            at = None if position is None else position - shift
            given = next((k.value for k in call.keywords if k.arg == name), None)
            if given is None and at is not None and 0 <= at < len(call.args):
                given = call.args[at]
            classes.append(None if given is None else self._class_of(given, other, depth + 1))
            if len(classes) > _MOST_SITES:
                return None
        return _same(classes)


def _same(classes: list[Class | None]) -> Class | None:
    first = classes[0] if classes else None
    return first if all(c is not None and first is not None and c[1] is first[1] for c in classes) else None
