"""May a function be run: does its syntax tree compute with tensors, numbers and strings, and nothing else?

What may stand in it is listed; all else is refused. So the code cannot reach files, processes, the interpreter's own
objects, or the code that runs it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

from ptopt.prove.names import ATTRIBUTES, BUILTINS, INPUT_OUTPUT, MODULES
from ptopt.prove.reasons import Reason, RefusedError

FunctionNode = ast.FunctionDef

_SYNTAX = (
    ast.FunctionDef, ast.Lambda, ast.arguments, ast.arg, ast.Return, ast.Delete, ast.Assign, ast.AugAssign, ast.AnnAssign,
    ast.For, ast.While, ast.If, ast.With, ast.withitem, ast.Raise, ast.Try, ast.ExceptHandler, ast.Assert, ast.Expr, ast.Pass,
    ast.Break, ast.Continue, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.JoinedStr,
    ast.FormattedValue, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice,
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_WRAPPERS = frozenset(
    {"torch.no_grad", "torch.inference_mode", "torch.enable_grad"}
)  # decorators that may stay
_UNLISTED = frozenset(dir(builtins)) - BUILTINS
_DEVICES = ("cuda", "mps", "xpu", "hpu", "npu", "xla", "meta")


def check(function: FunctionNode, imports: Mapping[str, str], known: frozenset[str]) -> frozenset[str]:
    """The names of the module that the function reads; raises `RefusedError` when it may do more than compute.

    `imports` maps names of the module to what they import, dotted; `known` are its constants and functions.
    """
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    local = frozenset(_bound(function))
    hidden = {name for name in local if name in imports or name in _UNLISTED or name.startswith("__")}
    if hidden:  # where such a name is not bound yet, it is the outer one that is read
        raise RefusedError(Reason.NOT_PURE, f"`{min(hidden)}` is bound")
    read: set[str] = set()
    for node in sorted(
        _executed(function), key=lambda node: not isinstance(node, ast.Name)
    ):  # names say most
        if not isinstance(node, _SYNTAX):
            raise RefusedError(Reason.NOT_PURE, f"line {getattr(node, 'lineno', 0)}: {_kind(node)}")
        if isinstance(node, ast.Name) and node.id not in local:
            _check_name(node, imports, known, parents)
            read.add(node.id)
        elif isinstance(node, ast.Attribute) and not _module_path(node, imports):
            _check_attribute(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.split(":")[0] in _DEVICES:
                raise RefusedError(Reason.DEVICE, f"line {node.lineno}: `{node.value.split(':')[0]}`")
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            _check_decorators(node, imports)
    return frozenset(read)


def _executed(function: FunctionNode) -> Iterator[ast.AST]:
    """All nodes but annotations, which the copy that is run does not evaluate."""
    left: list[ast.AST] = [function]
    while left:
        node = left.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment", "type_params", "type_ignores"):
                continue
            left += [
                item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)
            ]


def _bound(function: FunctionNode) -> Iterator[str]:
    """Every name that is bound somewhere in the function, its own parts included."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def _check_name(
    node: ast.Name, imports: Mapping[str, str], known: frozenset[str], parents: Mapping[ast.AST, ast.AST]
) -> None:
    name = node.id
    if name in imports:
        path = imports[name]
        if path in MODULES:  # the module itself is no value: only what of it is listed
            top: ast.AST = node
            while isinstance(parents.get(top), ast.Attribute):
                top = parents[top]
                path += f".{top.attr}" if isinstance(top, ast.Attribute) else ""
                if path not in MODULES:
                    break
        _check_path(path, node.lineno)
    elif name in INPUT_OUTPUT:
        raise RefusedError(Reason.INPUT_OUTPUT, f"line {node.lineno}: `{name}`")
    elif name not in known and name not in BUILTINS:
        raise RefusedError(Reason.OUTSIDE_NAME, f"line {node.lineno}: `{name}`")


def _check_path(path: str, line: int) -> None:
    module, _, name = path.rpartition(".")
    if any(part in _DEVICES for part in path.split(".")):
        raise RefusedError(Reason.DEVICE, f"line {line}: `{path}`")
    if name not in MODULES.get(module, ()):
        listed = path.split(".")[0] in MODULES
        raise RefusedError(Reason.NOT_PURE if listed else Reason.OUTSIDE_NAME, f"line {line}: `{path}`")


def _module_path(node: ast.Attribute, imports: Mapping[str, str]) -> bool:
    """Is it a module, or the name in one that `_check_name` checks?"""
    parts = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name) or value.id not in imports or not isinstance(node.ctx, ast.Load):
        return False
    parts.append(imports[value.id])
    module = ".".join(reversed(parts[1:]))
    return module in MODULES


def _check_attribute(node: ast.Attribute) -> None:
    if node.attr in _DEVICES:
        raise RefusedError(Reason.DEVICE, f"line {node.lineno}: `.{node.attr}`")
    if not isinstance(node.ctx, ast.Load) or node.attr not in ATTRIBUTES:
        raise RefusedError(Reason.NOT_PURE, f"line {node.lineno}: `.{node.attr}`")


def _check_decorators(node: ast.FunctionDef | ast.Lambda, imports: Mapping[str, str]) -> None:
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if dotted(target, imports) not in _WRAPPERS:
            raise RefusedError(Reason.NOT_PURE, f"line {decorator.lineno}: decorator")


def dotted(node: ast.expr, imports: Mapping[str, str]) -> str:
    """The dotted name of what an expression names through the imports; "" when it names nothing of them."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imports:
        return ""
    return ".".join([imports[node.id], *reversed(parts)])


def _kind(node: ast.AST) -> str:
    words = {ast.Yield: "a generator", ast.YieldFrom: "a generator", ast.Await: "a coroutine", ast.Global: "`global`",
             ast.Nonlocal: "`nonlocal`", ast.Import: "an import", ast.ImportFrom: "an import", ast.ClassDef: "a class"}  # fmt: skip
    return words.get(type(node), f"`{type(node).__name__}`")
