"""Loaders that do not pin the batches that their loops move to a device, and those that do."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.code import is_literal
from ptopt.rules.shared.arguments import may_take
from ptopt.rules.shared.loaders import (
    Loader,
    batch_moves,
    batch_names,
    batches_move_by_framework,
    feeds_other_framework,
    gives_arrays,
    hands_out,
    loader_of,
    makes_device_items,
    readings,
    root_name,
)
from ptopt.rules.shared.moves import Move
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A loader without pinning, the loops over it, and the first move to a device in each of them."""

    loader: Loader
    loops: Sequence[ast.For]
    moves: Sequence[tuple[Move, ast.For]]
    trained: Sequence[tuple[Move, ast.For]]  # of these, those in training


@remembered
def unpinned(node: ast.AST, file: SourceFile) -> Unpinned | None:
    """The loader that `node` makes, where pinning is off and its batches go, or may go, to a device."""
    loader = loader_of(node, file)
    if loader is None or not loader.complete:
        return None
    pinned = loader.arguments.get("pin_memory")
    if not (pinned is None or is_literal(pinned, False)) or is_literal(loader.arguments.get("dataset"), None):
        return None
    if feeds_other_framework(file) or gives_arrays(loader, file):
        return None  # no batch goes to a device of torch
    loops = [reading.loop for reading in readings(loader.call, file)]
    moves = [(move, loop) for loop in loops if (move := _move_in(loop, file)) is not None]
    if not moves and not file.uses_accelerator and hands_out(loader.call, file) is None:
        return None
    if (loops and not moves and not _handed_on(loops, file)) or makes_device_items(loader, file):
        return None  # no batch goes to a device, or all lie there already
    trained = [(m, loop) for m, loop in moves if file.context.training_step(loop.body[0]) is not None]
    return Unpinned(loader, loops, moves, trained)


def moved_from_unpinned(file: SourceFile) -> frozenset[ast.For]:
    """Loops that move the batches of such a loader of this file: what it lacks is said of the loader."""
    return file.once(_loops)


def _loops(file: SourceFile) -> frozenset[ast.For]:
    found = (unpinned(call, file) for call in file.calls_named("DataLoader"))
    return frozenset(loop for one in found if one is not None for _, loop in one.moves)


def pins(loader: Loader) -> bool:
    return is_literal(loader.arguments.get("pin_memory"), True)


def blocking_moves(loop: ast.For, file: SourceFile) -> Iterator[Move]:
    """Moves of tensors of the batch that wait. `batch.to(device)` on the batch as a whole may be a method of its own class."""
    whole = loop.target.id if isinstance(loop.target, ast.Name) else ""
    for move in batch_moves(loop, file):
        if move.non_blocking or (isinstance(move.tensor, ast.Name) and move.tensor.id == whole):
            continue
        if not may_take(move.call, "non_blocking", file, of_modules=False):
            continue  # a part of the batch may be of the project's own class, too
        yield move


def moved_from_pinned(file: SourceFile) -> frozenset[ast.Call]:
    """Moves that wait, in loops over a loader of this file that pins its batches."""
    return file.once(_moves_from_pinned)


def _moves_from_pinned(file: SourceFile) -> frozenset[ast.Call]:
    loaders = (loader_of(call, file) for call in file.calls_named("DataLoader"))
    loops = {
        reading.loop
        for one in loaders
        if one is not None and pins(one)
        for reading in readings(one.call, file)
    }
    return frozenset(move.call for loop in loops for move in blocking_moves(loop, file))


def pinning_loaders(file: SourceFile) -> list[int]:
    """The lines of the loaders of the file, where all of them pin their batches."""
    loaders = [(call, loader_of(call, file)) for call in file.calls_named("DataLoader")]
    if any(loader is None or not pins(loader) for _, loader in loaders):
        return []
    return [call.lineno for call, _ in loaders]


def _handed_on(loops: list[ast.For], file: SourceFile) -> bool:
    """May a function that a loop gives its batches to send them to the device?"""
    return batches_move_by_framework(file) or any(_hands_on(loop, file) for loop in loops)


@remembered
def _hands_on(loop: ast.For, file: SourceFile) -> bool:
    names = batch_names(loop)
    return any(
        isinstance(node, ast.Call) and any(root_name(arg) in names for arg in node.args)
        for node in own_nodes(loop)
    )


@remembered
def _move_in(loop: ast.For, file: SourceFile) -> Move | None:
    """The first move of a tensor of the batch."""
    return next(batch_moves(loop, file), None)
