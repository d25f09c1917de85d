"""Whose graph does an expression carry, and is that graph backpropagated?"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import path_of
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk
from ptopt.source.values import is_loss_name

_FACTOR = re.compile(r"weight|coef|scale|ratio|factor|lambda|alpha|beta|gamma", re.I)
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
        for part in _backward_of(call, file):
            names = [n for n in walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
            found.update(n.id for n in names)
            if path := path_of(part):
                found.add(path)
    return frozenset(found)


def _backward_of(call: ast.Call, file: SourceFile) -> list[ast.expr]:
    """What a call runs the backward pass of, as far as its receiver and arguments tell; [] where it runs none."""
    if file.context.goes_through_scaler(call):
        return call.args[:1]
    func = call.func
    runs = isinstance(func, ast.Attribute) and func.attr in ("backward", "manual_backward")
    return [func.value, *call.args] if runs and isinstance(func, ast.Attribute) else []


@remembered
def with_terms(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    """The names that are backpropagated, and what is added to make them."""
    trained = backpropagated(function, file)
    return trained.union(terms_of(trained, function, file))


def _backward_calls(file: SourceFile) -> list[ast.Call]:
    """All calls of the file that run a backward pass, in source order."""
    return sorted((call for call in file.index.of_type(ast.Call) if _backward_of(call, file)), key=_line)


def _line(call: ast.Call) -> int:
    return call.lineno


@remembered
def terms_of(names: frozenset[str], function: FunctionNode | None, file: SourceFile) -> dict[str, str]:
    """What is added to make the names, each with the one of them that it is a part of: `aux` of `loss = main + 0.1 * aux`.

    A factor counts where it is known to be a tensor, or has the name of a loss: `0.1` may have a name, too.
    """
    found: dict[str, str] = {}
    tried = set(names)
    waiting = [(name, name) for name in sorted(names)]
    while waiting:
        name, whole = waiting.pop()
        for binding in file.bindings.of(function, name):
            summed = (
                _terms(binding.value)
                if binding.value is not None and binding.kind in ("assign", "augment")
                else []
            )
            for term in summed:
                if term.id in tried:
                    continue
                tried.add(term.id)
                if _has_graph(term, function, file):
                    found[term.id] = whole
                    waiting.append((term.id, whole))
    return found


def _terms(value: ast.expr) -> list[ast.Name]:
    """The names in a sum of products."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        return _terms(value.left) + ([] if isinstance(value.op, ast.Div) else _terms(value.right))
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("mean", "sum")
    ):
        return _terms(value.func.value)
    return [value] if isinstance(value, ast.Name) else []


def _has_graph(term: ast.Name, function: FunctionNode | None, file: SourceFile) -> bool:
    """Is it a tensor that autograd followed, by what is known of it, or by its name and what is bound to it?"""
    value = file.values.of(term)
    if value.graph is False or (value.kind and value.kind != "tensor"):
        return False
    given = [b.value for b in file.bindings.of(function, term.id)]
    if not given or any(v is None or isinstance(v, ast.Constant) or is_cut(v) for v in given):
        return False
    return value.kind == "tensor" or (is_loss_name(term.id) and _FACTOR.search(term.id) is None)


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
    calls = file.once(_backward_calls)
    first = bisect_left(calls, step.lineno, key=_line)  # type: ignore[attr-defined]
    last = bisect_right(calls, step.end_lineno, key=_line)  # type: ignore[attr-defined]
    for call in calls[first:last]:
        keeps = [k.value for k in call.keywords if k.arg in ("retain_graph", "create_graph")]
        kept = any(not (isinstance(k, ast.Constant) and not k.value) for k in keeps)
        if kept or not file.index.within(call, step):
            continue
        guards: list[ast.If] = []
        for ancestor, _ in file.index.ancestors(call):
            if ancestor is step:
                break
            if isinstance(ancestor, ast.If):
                guards.append(ancestor)
        for part in _backward_of(call, file):
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
