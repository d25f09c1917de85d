"""Arguments of a data loader that a change switches off, and whether the loader feeds a training on an accelerator."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.regressions._base import Loss
from ptopt.rules.shared.collected import trains_anywhere
from ptopt.rules.shared.loaders import Loader, is_for_evaluation, loader_of

_TRAINS = re.compile(r"^(train|fit)(_|$)")
_MOST_CALLERS = 10  # of the function that builds the loader, in other files


def switched_off(loss: Loss, argument: str) -> Loader | None:
    """The loader at the place for which the change writes the argument as `0` or `False`."""
    for call in loss.file.calls.calls_in(loss.function):
        loader = loader_of(call, loss.file) if loss.first <= call.lineno <= loss.last else None
        given = loader.arguments.get(argument) if loader is not None else None
        if isinstance(given, ast.Constant) and not given.value and given.lineno in loss.change.added:
            return loader
    return None


def left_out(loss: Loss, argument: str) -> Loader | None:
    """The loader at the place, all of whose arguments are known, that is not given the argument any more.

    Only for a call that is the place itself; a whole function may hold others that never had it.
    """
    for call in loss.file.calls.calls_in(loss.function):
        loader = loader_of(call, loss.file)
        if loader is not None and (call.lineno, call.end_lineno) == (loss.first, loss.last):
            return loader if loader.complete and argument not in loader.arguments else None
    return None


def feeds_training(loader: Loader, loss: Loss) -> bool:
    """Not one for validation, tests or inference, as far as the names tell."""
    return not is_for_evaluation(loader.call, loss.file)


def training_file(loss: Loss) -> SourceFile | None:
    """The file that trains on an accelerator: this one, where it hands a loader at the place to a method that trains, too; or
    one that calls the function at the place.
    """
    if loss.file.uses_accelerator and _is_handed_to_training(loss):
        return loss.file
    files = [loss.file]
    if loss.function is not None:
        callers = loss.file.repository.callers(loss.file, loss.function)[:_MOST_CALLERS]
        files += [other for other, _ in callers]
    return next((file for file in files if file.uses_accelerator and trains_anywhere(file)), None)


def _is_handed_to_training(loss: Loss) -> bool:
    """Does a loader at the place go to `trainer.train(epoch, loader)`, wherever that is written?"""
    file = loss.file
    calls = file.calls.calls_in(loss.function)
    names = {
        target.id
        for call in calls
        if loss.first <= call.lineno <= loss.last and loader_of(call, file) is not None
        if isinstance(statement := file.index.statement_of(call), ast.Assign) and statement.value is call
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(call.func, ast.Attribute)
        and _TRAINS.search(call.func.attr) is not None
        and any(
            isinstance(a, ast.Name) and a.id in names for a in (*call.args, *(k.value for k in call.keywords))
        )
        for call in calls
    )
