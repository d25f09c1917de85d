"""Batches of classes that the pinning of a loader does not reach, and batches of arrays.

`torch.utils.data` pins tensors, mappings, sequences, and what has a method `pin_memory`; anything else it returns as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.audit.calling import lineage
from ptopt.audit.modules import Module, dotted_name, qualified
from ptopt.audit.setup import Setup
from ptopt.audit.values import Place
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes

NOT_REACHED = "pinning does not reach `"
LEFT_AS_ARRAYS = "which pinning leaves as they are"
_ARRAYS = frozenset("array asarray stack vstack hstack concatenate zeros ones full".split())
_EMPTY = frozenset({"dict", "OrderedDict", "collections.OrderedDict"})
_COLLATE = 6  # its position among the arguments of `DataLoader`
# Python calls the first two for names that a class does not define.
_MAY_PIN = frozenset({"__getattr__", "__getattribute__", "pin_memory"})
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A class of a batch, or of a part of it; or arrays of NumPy, where `of_arrays`: all that the function returns."""

    name: str
    place: Place
    whole: bool
    of_arrays: bool = False

    @property
    def said(self) -> str:
        if self.of_arrays:
            return f"`{self.name}` returns arrays of NumPy, {LEFT_AS_ARRAYS}"
        return f"{NOT_REACHED}{self.name}`, which is no mapping or sequence and has no method `pin_memory`"


def unpinned(setup: Setup, loaders: Iterator[tuple[Module, ast.Call]]) -> Unpinned | None:
    """What the loaders give that is not pinned, as their functions that collate show; None where none is seen."""
    for module, call in loaders:
        given = setup.keyword(call, "collate_fn", _COLLATE)
        for holder, function in _functions(setup, module, given, 0) if given is not None else ():
            found = _returned(setup, holder, function)
            if found is not None:
                return found
    return None


def _functions(
    setup: Setup, module: Module, given: ast.expr, depth: int
) -> Iterator[tuple[Module, FunctionNode]]:
    """The functions of the repository that an expression may be, or whose object it is called as."""
    if depth > _DEEPEST:
        return
    binding = module.file.bindings.last_before(given) if isinstance(given, ast.Name) else None
    if binding is not None and binding.kind == "assign" and binding.value is not None:
        yield from _functions(setup, module, binding.value, depth + 1)
        return
    if isinstance(given, ast.Call) and last_name(given.func) == "partial" and given.args:
        yield from _functions(setup, module, given.args[0], depth + 1)
        return
    called = isinstance(given, ast.Call)
    found = _resolved(setup, module, given.func if isinstance(given, ast.Call) else given)
    if found is None:
        return
    if isinstance(found[1], FUNCTIONS) and not called:
        yield found[0], found[1]
    elif isinstance(found[1], ast.ClassDef) and called:
        for holder, owner in lineage(setup.live, found[0], found[1]):
            method = next((s for s in owner.body if isinstance(s, FUNCTIONS) and s.name == "__call__"), None)
            if method is not None:
                yield holder, method
                return


def _resolved(setup: Setup, module: Module, named: ast.expr) -> tuple[Module, ast.AST | None] | None:
    name = dotted_name(named)
    return setup.live.modules.resolve(module, name) if name else None


def _returned(setup: Setup, module: Module, function: FunctionNode) -> Unpinned | None:
    if _returns_arrays(module, function):
        return Unpinned(function.name, setup.place(module, function), whole=True, of_arrays=True)
    for node in own_nodes(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
        for part in parts:
            for made in _made(module, function, part):
                found = _resolved(setup, module, made.func)
                if (
                    found is not None
                    and isinstance(found[1], ast.ClassDef)
                    and _stays(setup, found[0], found[1])
                ):
                    whole = len(parts) == 1
                    return Unpinned(found[1].name, setup.place(found[0], found[1]), whole)
    return None


def _returns_arrays(module: Module, function: FunctionNode) -> bool:
    """Are arrays of NumPy all that it returns, in whatever mapping or sequence?"""
    returned = [node.value for node in own_nodes(function) if isinstance(node, ast.Return)]
    return bool(returned) and all(
        value is not None and _is_of_arrays(module, function, value) for value in returned
    )


def _is_of_arrays(module: Module, function: FunctionNode, value: ast.expr, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return False

    def of_arrays(*parts: ast.expr) -> bool:
        return bool(parts) and all(_is_of_arrays(module, function, part, depth + 1) for part in parts)

    if isinstance(value, (ast.Tuple, ast.List)):
        return of_arrays(*value.elts)
    if isinstance(value, ast.Dict):
        return None not in value.keys and of_arrays(*value.values)
    if isinstance(value, ast.DictComp):
        return of_arrays(value.value)
    if isinstance(value, ast.Call):
        package, _, name = qualified(module, value.func).rpartition(".")
        return package == "numpy" and name in _ARRAYS
    if not isinstance(value, ast.Name):
        return False
    bindings = module.file.bindings.of(function, value.id)
    held = [binding.value for binding in bindings if binding.kind == "assign"]
    stored = _stored(module, function, value.id)
    if len(held) != len(bindings) or not held or stored is None:
        return False
    made = [each for each in held if each is not None and not (stored and _is_empty(each))]
    return None not in held and of_arrays(*made, *stored)


def _is_empty(value: ast.expr) -> bool:
    """`{}`, `dict()`"""
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and not value.args and not value.keywords and dotted_name(value.func) in _EMPTY  # fmt: skip


def _stored(module: Module, function: FunctionNode, name: str) -> list[ast.expr] | None:
    """What is put under the keys of a name that is only filled and returned; None of a name with other uses."""
    found = []
    for read in module.file.reads_of(function, name):
        parent = module.file.index.parent(read)
        if isinstance(parent, ast.Return) or isinstance(module.file.index.statement_of(read), ast.Return):
            continue
        assign = module.file.index.parent(parent) if isinstance(parent, ast.Subscript) else None
        if not isinstance(assign, ast.Assign) or parent not in assign.targets:
            return None
        found.append(assign.value)
    return found


def _made(module: Module, function: FunctionNode, part: ast.expr) -> Iterator[ast.Call]:
    """The calls that make what is returned."""
    if isinstance(part, ast.Call):
        yield part
    elif isinstance(part, ast.Name):
        for binding in module.file.bindings.of(function, part.id):
            if binding.kind == "assign" and isinstance(binding.value, ast.Call):
                yield binding.value


def _stays(setup: Setup, module: Module, cls: ast.ClassDef) -> bool:
    """Does the pinning return an object of the class as it is? Not known of a class with bases that are not read."""
    for holder, owner in lineage(setup.live, module, cls):
        for base in owner.bases:
            found = _resolved(setup, holder, base)
            inside = found is not None and isinstance(found[1], ast.ClassDef)
            if not inside and dotted_name(base) not in ("object", "abc.ABC", "ABC"):
                return False
        if owner.keywords or any(isinstance(s, FUNCTIONS) and s.name in _MAY_PIN for s in owner.body):
            return False
    return True
