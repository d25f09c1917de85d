"""Arguments of a data loader that a change switches off, and whether the loader feeds a training on an accelerator."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.code import keyword_of
from ptopt.rules.regressions._base import Loss
from ptopt.rules.shared.collected import trains_anywhere
from ptopt.rules.shared.loaders import Loader, is_for_evaluation, loader_of
from ptopt.source.calls import called_name
from ptopt.source.index import FunctionNode

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


def hands_on_none(loss: Loss, argument: str) -> bool:
    """Does the change write the argument as `0`, or a list of them, for a function of the repository that gives it to a loader?"""
    file = loss.file
    for call in file.calls.calls_in(loss.function):
        given = keyword_of(call, argument) if loss.first <= call.lineno <= loss.last else None
        if given is None or given.lineno not in loss.change.added or not _is_none(given):
            continue
        found = file.definition_of(call)
        if found is not None and _gives_to_loader(found[1], argument, found[0]):
            return True
    return False


def _is_none(given: ast.expr) -> bool:
    values = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
    return bool(values) and all(isinstance(value, ast.Constant) and value.value == 0 for value in values)


def _gives_to_loader(function: FunctionNode, argument: str, file: SourceFile) -> bool:
    """Does a loader that the function builds get its parameter of that name, or one item of it after the other?"""
    for call in file.calls.calls_in(function):
        loader = loader_of(call, file)
        given = loader.arguments.get(argument) if loader is not None else None
        bindings = file.bindings.of(function, given.id) if isinstance(given, ast.Name) else []
        if len(bindings) != 1:
            continue
        binding = bindings[0]
        source: ast.expr | None = binding.value if binding.kind == "item" else given
        if isinstance(source, ast.Call) and called_name(source) == "zip" and len(binding.path) == 1:
            source = source.args[binding.path[0]] if binding.path[0] < len(source.args) else None
        if isinstance(source, ast.Name) and source.id == argument:
            return any(b.kind == "parameter" for b in file.bindings.of(function, argument))
    return False


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
