"""What `f(**options)` gives an argument: dictionaries in the code, in functions that return them, in configurations."""

from __future__ import annotations

import ast

from ptopt.audit.calling import callers
from ptopt.audit.evaluate import Evaluator
from ptopt.audit.known import Value, default_of, one_of
from ptopt.audit.modules import Module, dotted_name
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS, FunctionNode

_DEEPEST = 6


def entry_of(
    evaluator: Evaluator, module: Module, table: ast.expr, name: str, absent: Value, depth: int = 0
) -> Value | None:
    """The value under a key of a dictionary, `absent` where it has no such key; None where that is not known."""
    if depth > _DEEPEST:
        return None
    if isinstance(table, ast.Dict):
        return _of_dict(evaluator, module, table, name, absent, depth)
    if isinstance(table, ast.IfExp):
        test = evaluator.truth_of(table.test, module).truth
        ways = [table.body, table.orelse] if test is None else [table.body if test else table.orelse]
        return _all(evaluator, [(module, way) for way in ways], name, absent, depth)
    if isinstance(table, ast.Call):
        return _of_call(evaluator, module, table, name, absent, depth)
    if isinstance(table, ast.Name):
        return _of_name(evaluator, module, table, name, absent, depth)
    if is_self(table) and isinstance(table, ast.Attribute):
        held = evaluator.held(table, module)
        if held is not None:
            return entry_of(evaluator, held[0], held[1], name, absent, depth + 1)
    if isinstance(table, (ast.Attribute, ast.Subscript)):
        return evaluator.configured_entry(table, name, module, absent)
    return None


def _all(
    evaluator: Evaluator, tables: list[tuple[Module, ast.expr]], name: str, absent: Value, depth: int
) -> Value | None:
    found = [entry_of(evaluator, module, table, name, absent, depth + 1) for module, table in tables]
    values = [value for value in found if value is not None]
    if not values or len(values) < len(found):
        return None
    return one_of(values, f"`{name}` depends on which dictionary is taken", values[0].place)


def _of_dict(
    evaluator: Evaluator, module: Module, table: ast.Dict, name: str, absent: Value, depth: int
) -> Value | None:
    result: Value | None = absent
    for key, value in zip(table.keys, table.values, strict=True):
        if key is None:  # {**others}
            found = entry_of(evaluator, module, value, name, absent, depth + 1)
            if found is None or found is not absent:
                result = found
        elif isinstance(key, ast.Constant) and key.value == name:
            result = evaluator.of(value, module)
    return result


def _of_call(
    evaluator: Evaluator, module: Module, call: ast.Call, name: str, absent: Value, depth: int
) -> Value | None:
    called = dotted_name(call.func)
    if called in ("dict", "vars", "OrderedDict") or called.endswith((".to_container", ".copy", ".deepcopy")):
        given = next((k.value for k in call.keywords if k.arg == name), None)
        if given is not None:
            return evaluator.of(given, module)
        inner = [*call.args[:1], *(k.value for k in call.keywords if k.arg is None)]
        if called.endswith(".copy") and not inner and isinstance(call.func, ast.Attribute):
            inner = [call.func.value]
        for table in inner:
            found = entry_of(evaluator, module, table, name, absent, depth + 1)
            if found is not absent:
                return found
        return absent
    resolved = evaluator.live.modules.resolve(module, called) if called else None
    if resolved is None or not isinstance(resolved[1], FUNCTIONS):
        return None
    holder, function = resolved[0], resolved[1]
    answers = [
        (holder, node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and node.value is not None
        and holder.file.index.function_of(node) is function
        and evaluator.condition(node, holder).truth is not False
    ]
    return _all(evaluator, answers, name, absent, depth)


def _of_name(
    evaluator: Evaluator, module: Module, table: ast.Name, name: str, absent: Value, depth: int
) -> Value | None:
    function = module.file.index.function_of(table)
    if function is not None and table.id == getattr(function.args.kwarg, "arg", ""):
        return _passed_on(evaluator, module, function, name, absent, depth)
    bindings = module.file.bindings.of(function, table.id)
    if not bindings and function is not None:
        function = None
        bindings = module.file.bindings.of(None, table.id)
    changed = _changed(evaluator, module, table, name, function, absent)
    if changed is not absent:
        return changed
    if len(bindings) == 1 and bindings[0].kind == "assign" and bindings[0].value is not None:
        return entry_of(evaluator, module, bindings[0].value, name, absent, depth + 1)
    tables = [
        (module, b.value)
        for b in bindings
        if b.kind == "assign"
        and b.value is not None
        and evaluator.condition(b.node, module).truth is not False
    ]
    if tables and all(b.kind == "assign" for b in bindings):
        return _all(evaluator, tables, name, absent, depth)
    if len(bindings) == 1 and bindings[0].kind == "parameter" and function is not None:
        return _of_parameter(evaluator, module, function, table.id, name, absent, depth)
    return None


def _of_parameter(
    evaluator: Evaluator, module: Module, function: FunctionNode, table: str, name: str, absent: Value, depth: int
) -> Value | None:  # fmt: skip
    """What the calls of a function give as a dictionary, and its default where one of them gives none."""
    given = list(evaluator.arguments(function, table, module))
    sites = [call for _, call, _ in callers(evaluator.live, function, module)]
    default = default_of(function, table)
    if default is not None and (len(given) < len(sites) or not sites) and not any(map(_spreads, sites)):
        given.append((module, default))
    return _all(evaluator, given, name, absent, depth)


def _spreads(call: ast.Call) -> bool:
    """Can it give each parameter, by `*` or `**`?"""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def _passed_on(
    evaluator: Evaluator, module: Module, function: FunctionNode, name: str, absent: Value, depth: int
) -> Value | None:
    """What the calls of a function give its `**kwargs` under a name, by itself or in a dictionary."""
    values = []
    for other, call, _ in callers(evaluator.live, function, module):
        found: Value | None = absent
        for keyword in call.keywords:
            if keyword.arg == name:
                found = evaluator.of(keyword.value, other)
            elif keyword.arg is None:
                entry = entry_of(evaluator, other, keyword.value, name, absent, depth + 1)
                found = found if entry is absent else entry
        if found is None:
            return None
        values.append(found)
    return one_of(values, f"`{name}`", None) if values else absent


def _changed(
    evaluator: Evaluator,
    module: Module,
    table: ast.Name,
    name: str,
    function: FunctionNode | None,
    absent: Value,
) -> Value | None:
    """`options["fused"] = True` and `options.update({...})`: what changes a dictionary after it was made."""
    index = module.file.index
    for part in index.of_type(ast.Subscript):
        if not (isinstance(part.value, ast.Name) and part.value.id == table.id):
            continue
        if not isinstance(part.ctx, ast.Store) or index.function_of(part) is not function:
            continue
        key = part.slice
        if not isinstance(key, ast.Constant):
            return None
        if key.value == name:
            runs = evaluator.condition(part, module)
            assign = index.parent(part)
            if runs.truth is False:
                continue
            return (
                evaluator.of(assign.value, module) if runs.truth and isinstance(assign, ast.Assign) else None
            )
    for call in module.file.calls.calls_in(function) if function is not None else ():
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "update" and dotted_name(func.value) == table.id:
            runs = evaluator.condition(call, module)
            if runs.truth is False:
                continue
            given: ast.expr = call.args[0] if call.args else ast.Call(ast.Name("dict"), [], call.keywords)
            found = entry_of(evaluator, module, given, name, absent, 1)
            if found is not absent:
                return found if runs.truth else None
    return absent
