"""Whose graph does an expression carry, and is that graph backpropagated?"""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import path_of
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk
from ptopt.source.values import is_loss_name

CUTS = frozenset({"detach", "item", "tolist", "numpy", "data", "detach_"})


def carrier_of(value: ast.expr) -> ast.Name | None:
    """The name whose graph the value carries: `loss` of `loss`, `loss * n`, `loss.mean().cpu()`; None when it is cut."""
    if isinstance(value, ast.Name):
        return value
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        return carrier_of(value.left) or carrier_of(value.right) if not is_cut(value) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return (
            carrier_of(value.func.value)
            if value.func.attr in ("mean", "sum", "cpu", "float", "to", "clone")
            else None
        )
    return None


def is_cut(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in CUTS for n in walk(value))


@remembered
def is_cut_anywhere(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    """Does the name get a value that is cut off its graph?"""
    return any(b.value is not None and is_cut(b.value) for b in file.bindings.of(function, name))


@remembered
def backpropagated(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    """Names that the function calls `backward` on, itself or through a scaler, an accelerator or an engine."""
    found: set[str] = set()
    for call in file.calls.calls_in(function):
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr in ("backward", "manual_backward")):
            continue
        for part in (func.value, *call.args):
            names = [n for n in walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            found.update(n.id for n in names)
            if path := path_of(part):
                found.add(path)
    return frozenset(found)


def frees_graph(name: str, node: ast.AST, step: ast.AST, file: SourceFile) -> bool:
    """Does `backward()` run through what `name` carries whenever `node` runs, so that all it saved is freed?"""
    ways = _backward_guards(step, file).get(name, ())
    if () in ways:
        return True
    around = {ancestor for ancestor, _ in file.index.ancestors(node)}
    choices: list[ast.If] = []
    for guards in ways:
        left = [guard for guard in guards if guard not in around]
        if not left:
            return True
        choices += left
    return any(guard.orelse and choices.count(guard) > 1 for guard in choices)


@remembered
def _backward_guards(step: ast.AST, file: SourceFile) -> dict[str, set[tuple[ast.If, ...]]]:
    """For each name that `backward()` runs through in the step: the conditions of each of these calls."""
    found: dict[str, set[tuple[ast.If, ...]]] = {}
    for call in (*file.calls_named("backward"), *file.calls_named("manual_backward")):
        keeps = next((k.value for k in call.keywords if k.arg == "retain_graph"), None)
        kept = keeps is not None and not (isinstance(keeps, ast.Constant) and not keeps.value)
        if kept or not isinstance(call.func, ast.Attribute) or not file.index.within(call, step):
            continue
        guards: list[ast.If] = []
        for ancestor, _ in file.index.ancestors(call):
            if ancestor is step:
                break
            if isinstance(ancestor, ast.If):
                guards.append(ancestor)
        for part in (call.func.value, *call.args):
            for name in walk(part):
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, set()).add(tuple(guards))
    return found


@remembered
def with_gradient(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    """`torch.autograd.backward(name, gradient)` or `name.backward(gradient)`: the name is no scalar loss."""
    for call in file.calls.calls_in(function):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "backward"):
            continue
        receiver = path_of(call.func.value) == name and bool(call.args)
        first = len(call.args) > 1 and path_of(call.args[0]) == name
        if receiver or (first and file.imports.qualified(call.func) == "torch.autograd.backward"):
            return True
    return False


def outlives(path: str, node: ast.AST, step: ast.AST, file: SourceFile) -> bool:
    """Is what `path` names made before the step, so that it is still there in the next one?"""
    if path.startswith("self."):
        return path not in _assigned_in(step)
    if isinstance(step, FUNCTIONS) or "." in path:
        return False
    return made_before(path, file.index.function_of(node), step, file)


@remembered
def _assigned_in(step: ast.AST) -> frozenset[str]:
    return frozenset(path_of(t) for n in own_nodes(step) if isinstance(n, ast.Assign) for t in n.targets)


@remembered
def made_before(path: str, function: FunctionNode | None, step: ast.AST, file: SourceFile) -> bool:
    if all(b.kind == "augment" for b in file.bindings.of(function, path)):
        return False
    return all(b.kind == "augment" for b in file.bindings.inside(function, path, step))


@remembered
def reduced_to_loss(
    path: str, function: FunctionNode | None, trained: frozenset[str], file: SourceFile
) -> bool:
    """Does a name that is backpropagated come from `path`: `loss = sum(losses)`?"""
    return any(
        isinstance(n, ast.Name) and n.id == path
        for name in trained
        for binding in file.bindings.of(function, name)
        if binding.value is not None
        for n in walk(binding.value)
    )


@remembered
def returns(function: FunctionNode, name: str) -> bool:
    return is_loss_name(name) and any(
        isinstance(n, ast.Return) and isinstance(n.value, ast.Name) and n.value.id == name
        for n in own_nodes(function)
    )


@remembered
def adds_to(loss: str, part: str, function: FunctionNode) -> bool:
    """`loss = ... + part`, `loss += weight * part`"""
    for node in own_nodes(function):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AugAssign)
            else None
        )
        if (
            isinstance(target, ast.Name)
            and target.id == loss
            and isinstance(node, (ast.Assign, ast.AugAssign))
        ):
            terms = [node.value]
            while terms:
                term = terms.pop()
                if isinstance(term, ast.BinOp):
                    terms += [term.left, term.right]
                elif isinstance(term, ast.Name) and term.id == part:
                    return True
                elif (
                    isinstance(term, ast.Call)
                    and isinstance(term.func, ast.Attribute)
                    and term.func.attr in ("mean", "sum")
                ):
                    terms.append(term.func.value)
    return False
