"""Which object the loss of a backward pass comes from: the one that Accelerate wrapped, or another one."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.source.index import walk

_DEEPEST = 3  # names that are followed from the loss


def bypasses_prepare(backward: ast.Call, file: SourceFile) -> bool:
    """Does the loss come from an object that was built before `prepare`, and only parts of which were passed to it?

    The object keeps the parts as they were, so that its forward pass never runs the wrapper that averages gradients.
    """
    cls = file.index.class_of(backward)  # `self.model` of another class is another model
    prepares = [call for call in file.calls_named("prepare") if file.index.class_of(call) is cls]
    wrapped = {path for call in prepares for path in _targets(call, file)}
    called = {path for argument in backward.args for path in _called_for(argument, file, _DEEPEST)}
    if not wrapped or wrapped & called:
        return False
    first = min(call.lineno for call in prepares)
    made = {
        file.source(target): assign.lineno
        for assign in file.index.of_type(ast.Assign)
        if isinstance(assign.value, ast.Call) and file.index.class_of(assign) is cls
        for target in assign.targets
    }
    return any(made.get(path, first) < first for path in called)


def _targets(prepare: ast.Call, file: SourceFile) -> list[str]:
    parent = file.index.parent(prepare)
    if not isinstance(parent, ast.Assign):
        return []
    return [
        file.source(element)
        for target in parent.targets
        for element in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]


def _called_for(expr: ast.expr, file: SourceFile, names: int) -> set[str]:
    """The objects and functions, as the file spells them, that a value is computed by."""
    found = set()
    for node in walk(expr):
        if isinstance(node, ast.Call):
            found.add(file.source(node.func))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and names:
            binding = file.bindings.last_before(node)
            if (
                binding is not None
                and isinstance(binding.value, ast.expr)
                and binding.kind in ("assign", "unpack")
            ):
                found |= _called_for(binding.value, file, names - 1)
    return found
