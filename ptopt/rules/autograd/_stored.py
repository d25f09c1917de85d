"""What a function stores for later, and whether the network goes on with it."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_ASKS_GRADIENT = ("backward", "grad_fn", "register_hook", "retain_grad")
_GRADIENTS = re.compile(rb"\.backward\(|autograd\.grad\(")


def stored_value(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
            return node.func.value, node.args[0]
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(
            target.slice, (ast.Name, ast.Constant, ast.JoinedStr, ast.Attribute)
        ):
            return target.value, node.value
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ):
            return target, node.value
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict):
            return target, node.value
    return None


def read_by_forward(container: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """Does the network itself go on with what is stored, so that its graph is needed?"""
    cls = file.index.class_of(function)
    if not isinstance(container, ast.Attribute) or cls is None:
        return False
    return any(
        read.attr == container.attr
        and isinstance(read.ctx, ast.Load)
        and file.index.class_of(read) is cls
        and (owner := file.index.function_of(read)) is not None
        and owner is not function
        and (owner.name in ("forward", "encode", "training_step", "__call__") or "loss" in owner.name)
        for read in file.once(_own_attributes).get(container.attr, ())
    )


def _own_attributes(file: SourceFile) -> dict[str, list[ast.Attribute]]:
    table: dict[str, list[ast.Attribute]] = {}
    for node in file.index.of_type(ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            table.setdefault(node.attr, []).append(node)
    return table


def parts_of(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, (ast.Tuple, ast.List)):
        return value.elts
    return value.values if isinstance(value, ast.Dict) else [value]


def stored_name(value: ast.expr) -> ast.Name | None:
    """`x` of `x`, `x.cpu()` and `x.to("cpu")`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr != "cpu" and not (
            value.func.attr == "to" and any("cpu" in ast.unparse(a) for a in value.args)
        ):
            return None
        value = value.func.value
    return value if isinstance(value, ast.Name) else None


@remembered
def hook_values(function: FunctionNode, file: SourceFile) -> frozenset[str]:
    """The parameters of a function that is registered as a forward hook: its inputs and outputs."""
    arguments = [a.arg for a in function.args.args]
    if arguments[:1] == ["self"]:
        arguments = arguments[1:]
    outer = file.index.enclosing(function, (ast.FunctionDef,))
    names = {function.name} | ({outer.name} if outer is not None else set())
    registering = [
        call
        for call in file.calls_named("register_forward_hook")
        for a in call.args[:1]
        if last_name(a) == function.name or (isinstance(a, ast.Call) and last_name(a.func) in names)
    ]
    if len(arguments) != 3 or not registering or any(_graph_is_settled(c, file) for c in registering):
        return frozenset()
    return frozenset(arguments[1:])


@remembered
def _graph_is_settled(registering: ast.Call, file: SourceFile) -> bool:
    """Does a network register the hook, so that it may go on with the output, or what registers it turn autograd off?"""
    cls = file.index.class_of(registering)
    if cls is not None and file.context.is_module(cls):
        return True
    function = file.index.function_of(registering)
    return function is not None and (
        file.context.turns_grad_off(function) or file.context.grad_off(registering)
    )


def backpropagated(container: ast.expr, file: SourceFile) -> bool:
    """Does something ask for gradients of the attribute, or does another file read it?"""
    if not isinstance(container, ast.Attribute):
        return False
    if container.attr in file.once(_differentiated):
        return True
    return file.repository.matches(_GRADIENTS, having=f".{container.attr}".encode(), besides=file.path)


def _differentiated(file: SourceFile) -> frozenset[str]:
    """The attributes of `self` that gradients are asked of."""
    found: set[str] = set()
    for name, reads in file.once(_own_attributes).items():
        for read in reads:
            above = file.index.parent(read)
            if isinstance(above, ast.Attribute) and above.attr in _ASKS_GRADIENT:
                found.add(name)
            while isinstance(above, (ast.List, ast.Tuple, ast.keyword)):
                above = file.index.parent(above)
            if isinstance(above, ast.Call) and last_name(above.func) == "grad":
                found.add(name)
    return frozenset(found)


def put_on_self(path: str, function: FunctionNode, file: SourceFile) -> bool:
    """Is the local container put into one of `self` in the same function?"""
    return any(
        isinstance(p := file.index.parent(load), ast.Call)
        and isinstance(p.func, ast.Attribute)
        and p.func.attr == "append"
        and "self." in ast.unparse(p.func.value)
        for load in file.uses.loads(function, path)
    ) or any(isinstance(n, ast.Global) and path in n.names for n in walk(function))
