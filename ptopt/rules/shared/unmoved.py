"""Parts of a batch that stay on the host while others are sent to the device."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.flow import value_of
from ptopt.source.file import remembered


def stays_on_host(expr: ast.expr, file: SourceFile) -> bool:
    """Is it a part of a batch, `batch[4]`, of which the loop sends other parts to the device, and not this one?"""
    part = value_of(expr, file)
    if not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Name):
        return False
    binding = file.bindings.last_before(part.value)
    if binding is None or binding.kind != "item" or not isinstance(binding.node, ast.For):
        return False
    sent = _sent(binding.node, part.value.id, file)
    return bool(sent) and ast.dump(part.slice) not in sent


@remembered
def _sent(loop: ast.For, batch: str, file: SourceFile) -> frozenset[str]:
    """The parts that the loop moves: `batch[0].to(device)`, or `x = batch[0]` and later `x.to(device)`."""
    found: set[str] = set()
    for load in file.uses.loads_in(loop, batch):
        part = file.index.parent(load)
        if not isinstance(part, ast.Subscript):
            continue
        above = file.index.parent(part)
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        held = file.uses.loads_in(loop, target.id) if isinstance(target, ast.Name) else ()
        if any(_is_moved(each, file) for each in (part, *held)):
            found.add(ast.dump(part.slice))
    return frozenset(found)


def _is_moved(expr: ast.expr, file: SourceFile) -> bool:
    method = file.index.parent(expr)
    return isinstance(method, ast.Attribute) and method.attr in ("to", "cuda")
