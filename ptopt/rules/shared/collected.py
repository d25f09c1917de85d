"""Code around which nothing trains: no file that is known to run it backpropagates or steps an optimizer."""

from __future__ import annotations

import ast

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.graphs import summed_with_graph
from ptopt.rules.shared.host_results import copies_each_to_host
from ptopt.rules.shared.networks import path_of
from ptopt.source.calls import called_name
from ptopt.source.index import FunctionNode, walk
from ptopt.source.torch_names import TENSOR_FACTORIES

# Calls that a sum may be given to without being backpropagated.
_REPORTS = frozenset("print float int str len round format append write info debug log".split())


def trains_anywhere(file: SourceFile) -> bool:
    """Does anything in the file backpropagate or step an optimizer?"""
    return file.once(_trains_anywhere)


def _trains_anywhere(file: SourceFile) -> bool:
    return any(
        file.context.is_training_mark(call)
        for name in ("backward", "manual_backward", "step")
        for call in file.calls_named(name)
    )


def collected(function: FunctionNode | None, passes: list[ast.Call], file: SourceFile) -> bool:
    """Does the code collect what the passes give, each in a loop, where nothing trains?

    It copies each result to the host or adds all of them up, and hands the sum to nothing that may go backward through it.
    Of a function, a caller has to be known, in this file or another: nobody knows what those elsewhere do. A network that is
    given the same made-up numbers again and again is only tried out.
    """
    if trains_anywhere(file) or not all(any(file.index.loops_of(call)) for call in passes):
        return False
    total = summed_with_graph(passes, file)
    if total is not None and _handed_on(path_of(total.target), function, file):
        return False
    copied = function is not None and copies_each_to_host(function, passes, file)
    if total is None and not copied:
        return False
    if function is None or (total is not None and all(_is_made_up(call, function, file) for call in passes)):
        return True
    callers = file.repository.callers(file, function)
    return bool(callers or file.calls.callers(function)) and not any(
        trains_anywhere(other) for other, _ in callers
    )


def _handed_on(name: str, function: FunctionNode | None, file: SourceFile) -> bool:
    """May a call that is given the value go backward through it?"""
    return not name or any(
        called_name(call) not in _REPORTS
        and any(
            isinstance(part, (ast.Name, ast.Attribute)) and path_of(part) == name
            for argument in call.args
            for part in walk(argument)
        )
        for call in file.calls.calls_in(function)
    )


def _is_made_up(call: ast.Call, function: FunctionNode, file: SourceFile) -> bool:
    """Is the network given only tensors that the function itself has filled with numbers: `x = torch.randn(1, 80, 3000)`?"""
    names = {part.id for argument in call.args for part in walk(argument) if isinstance(part, ast.Name)}
    made = [file.bindings.of(function, name) for name in names]
    return bool(made) and all(
        len(bindings) == 1
        and bindings[0].value is not None
        and any(
            isinstance(part, ast.Call)
            and called_name(part) in TENSOR_FACTORIES
            and not any(keyword.arg == "requires_grad" for keyword in part.keywords)
            for part in walk(bindings[0].value)
        )
        for bindings in made
    )
