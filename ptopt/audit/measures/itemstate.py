"""Datasets whose items depend on what the main process changes between epochs: workers that are kept do not see it.

A worker has the copy of the dataset that it was started with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.calling import callers, lineage
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Setup
from ptopt.audit.values import Place
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes

Methods = dict[str, tuple[Module, FunctionNode]]  # of a class and its bases, by name
# What another object counts: `self.trainer.state.epoch`.
_COUNTED = re.compile(r"^self\.\w+\.(\w+\.)*(\w*epoch\w*|global_step|cur(rent)?_(step|iter\w*|stage))$")
_CONSTANT = re.compile(r"(num|n|max|total|per|warm\w*|end|start)_?epochs?|epochs|per_epoch", re.I)
_SHARED = re.compile(r"\b(Raw)?(Value|Array)\(|share_memory|Manager\(|SharedMemory")
_OF_DATA = re.compile(r"data_?set$|(^|\.|_)ds$|(^|_)data$", re.I)
_EPOCH = re.compile(r"epoch|(^|_)(stage|round|phase)s?(_|$)", re.I)
_IS_TOLD = "set_epoch"  # called by trainers, too


def changes_between_epochs(setup: Setup) -> tuple[str, Place] | None:
    """What the items of a dataset read that the main process changes while it trains, in words, and where."""
    for cls, module in setup.live.classes.items():
        methods = _methods(setup, module, cls)
        start = _start(setup, module, cls, methods)
        if start not in methods or not _is_made(setup, cls):
            continue
        inside = _called_inside(methods, start)
        for name in inside:
            holder, method = methods[name]
            for node in _reads(method):
                if _is_changed(setup, methods, inside, holder, node):
                    read = text_of(_whole(holder, node))
                    return f"`{cls.name}.{name}` reads `{read}`", setup.place(holder, node)
    return None


def _methods(setup: Setup, module: Module, cls: ast.ClassDef) -> Methods:
    found: Methods = {}
    for holder, owner in lineage(setup.live, module, cls):
        for statement in owner.body:
            if isinstance(statement, FUNCTIONS):
                found.setdefault(statement.name, (holder, statement))
    return found


def _start(setup: Setup, module: Module, cls: ast.ClassDef, methods: Methods) -> str:
    """The method by which a worker gets items; "" where the class is no dataset."""
    bases = [
        text_of(base).rpartition(".")[2]
        for _, owner in lineage(setup.live, module, cls)
        for base in owner.bases
    ]
    if "IterableDataset" in bases:
        return "__iter__"
    return "__getitem__" if any(base.endswith("Dataset") for base in bases) else ""


def _is_made(setup: Setup, cls: ast.ClassDef) -> bool:
    return any(setup.runs(other, node).truth is not False for other, node in setup.live.sites.get(cls))


def _called_inside(methods: Methods, start: str) -> list[str]:
    """The methods that a worker runs for an item, by the calls of `self`."""
    found, waiting = [start], [start]
    while waiting:
        _, method = methods[waiting.pop()]
        for node in own_nodes(method):
            if (
                isinstance(node, ast.Attribute)
                and is_self(node)
                and node.attr in methods
                and node.attr not in found
            ):
                found.append(node.attr)
                waiting.append(node.attr)
    return found


def _reads(method: FunctionNode) -> Iterator[ast.Attribute]:
    for node in own_nodes(method):
        if isinstance(node, ast.Attribute) and is_self(node) and isinstance(node.ctx, ast.Load):
            yield node


def _whole(module: Module, node: ast.Attribute) -> ast.Attribute:
    """`self.trainer.state.epoch` of `self.trainer`"""
    parent = module.file.index.parent(node)
    while isinstance(parent, ast.Attribute) and parent.value is node:
        node, parent = parent, module.file.index.parent(parent)
    return node


def _is_changed(
    setup: Setup, methods: Methods, inside: list[str], module: Module, node: ast.Attribute
) -> bool:
    whole = _whole(module, node)
    if whole is not node and _COUNTED.match(text := text_of(whole)):
        return not _CONSTANT.search(text.rpartition(".")[2])
    assigned = [
        (name, holder, each)
        for name, (holder, method) in methods.items()
        for each in own_nodes(method)
        if isinstance(each, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _assigns(each, node.attr)
    ]
    if any(_SHARED.search(text_of(each)) for _, _, each in assigned):
        return False
    if any(name in inside for name, _, _ in assigned):
        return False  # a cache, which each worker fills for itself
    if any(name != "__init__" and _is_called_again(setup, *methods[name]) for name, _, _ in assigned):
        return True
    return bool(assigned) and any(
        _is_set_again(setup, other, store) for other, store in _stores(setup, node.attr)
    )


def _stores(setup: Setup, name: str) -> Iterator[tuple[Module, ast.Attribute]]:
    """`loader.dataset.epoch = epoch` in what runs"""
    for module in setup.live.read.values():
        for node in module.file.index.attributes_named(name):
            if isinstance(node.ctx, ast.Store) and not is_self(node) and setup.live.runs(module, node):
                yield module, node


def _is_set_again(setup: Setup, module: Module, store: ast.Attribute) -> bool:
    return (
        _OF_DATA.search(text_of(store.value)) is not None
        and _is_of_epochs(module, store)
        and setup.runs(module, store).truth is not False
    )


def _assigns(statement: ast.Assign | ast.AugAssign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(isinstance(t, ast.Attribute) and is_self(t) and t.attr == name for t in targets)


def _is_called_again(setup: Setup, module: Module, method: FunctionNode) -> bool:
    """Is it called for each epoch: in a loop that says so, in a hook of that name, or by trainers, which tell a dataset its epoch?"""
    sites = callers(setup.live, method, module)
    if method.name == _IS_TOLD and sites:
        return True
    return any(
        _is_of_epochs(other, call)
        for other, call, _ in sites
        if isinstance(call.func, ast.Attribute)
        and not is_self(call.func)
        and setup.runs(other, call).truth is not False
    )


def _is_of_epochs(module: Module, node: ast.AST) -> bool:
    """Does a loop around it, or its function, name the epochs?"""
    function = module.file.index.function_of(node)
    heads = [
        text_of(loop.test) if isinstance(loop, ast.While) else f"{text_of(loop.target)} {text_of(loop.iter)}"
        for loop in module.file.index.loops_of(node)
    ]
    return any(map(_EPOCH.search, [*heads, function.name if function is not None else ""]))
