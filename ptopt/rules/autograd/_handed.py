"""The networks that the callers of a function hand over for one of its parameters."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import path_of
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

_FARTHEST = 3  # callers of callers that are asked
_MOST_CALLS = 6  # of one function that are looked at


@dataclass(frozen=True, slots=True)
class Handed:
    """What one call hands over."""

    file: SourceFile
    call: ast.Call
    given: ast.expr | None  # None: it cannot be told, as behind `*args`, or the default

    @property
    def path(self) -> str:
        """The dotted name of what is handed over; "" for another expression."""
        return path_of(self.given) if self.given is not None else ""


def handed_over(
    function: FunctionNode, name: str, file: SourceFile, depth: int = _FARTHEST
) -> tuple[tuple[Handed, ...], ...]:
    """What each call of `function`, in this file and others, gives for its parameter `name`; () where no call is known.

    Where the calling function has it from its own callers, theirs follow: one chain for each of them.
    """
    calls = [(file, call) for call in file.calls.callers(function)]
    calls += file.repository.callers(file, function)
    chains: list[tuple[Handed, ...]] = []
    for other, call in calls[:_MOST_CALLS]:
        step = Handed(other, call, _argument(call, function, name, file))
        around = other.index.function_of(call)
        passed_on = any(binding.kind == "parameter" for binding in other.bindings.of(around, step.path))
        further = handed_over(around, step.path, other, depth - 1) if passed_on and around and depth else ()
        chains += [(step, *chain) for chain in further] or [(step,)]
    return tuple(chains)


def _argument(call: ast.Call, function: FunctionNode, name: str, file: SourceFile) -> ast.expr | None:
    """The expression that the call gives for the parameter."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if named is not None:
        return named
    parameters = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(file.index.parent(function), ast.ClassDef) and not any(
        last_name(decorator) == "staticmethod" for decorator in function.decorator_list
    ):
        parameters = parameters[1:]
    before = call.args[: parameters.index(name) + 1] if name in parameters else []
    if not before or any(isinstance(argument, ast.Starred) for argument in before):
        return None
    return before[-1] if len(before) == parameters.index(name) + 1 else None
