"""Does autograd record a pass of a network that the training neither updates nor needs gradients through?"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass

from ptopt.rules.autograd._handed import Handed, handed_over
from ptopt.rules.base import SourceFile
from ptopt.rules.code import is_literal
from ptopt.rules.shared.evaluation import evaluated_in
from ptopt.rules.shared.networks import network_method_of, network_of, networks, optimised_in, path_of
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, FunctionNode, own_nodes, walk

_MOST_NAMES = 12  # between the batch and what the network is given
# What may hold the freezing, or a switch of autograd, where only its call is seen.
_FREEZES = re.compile(r"freez|frozen|_grad|eval_mode|untrain|no_train", re.I)
# Networks that are only ever read from, by their names.
_READ_ONLY = re.compile(r"(^|_)(teacher|ref|reference)(_|$)", re.I)
# Parameters of a step that a network of the caller has made.
_MADE = re.compile(
    r"fake|gen|pred|out|recon|rec_|student|logit|feat|latent|embed|hidden|x_?hat|adv|delta", re.I
)


@dataclass(frozen=True, slots=True)
class Untrained:
    """A network that the training keeps in evaluation mode and does not update, and how that is known."""

    confidence: float
    pretrained: bool  # its weights are loaded where they can be seen
    reason: str  # "which ..."


def untrained(path: str, function: FunctionNode | None, file: SourceFile) -> Untrained | None:
    """Is the network put into evaluation mode and left there, with weights that need gradients and no optimizer has?

    The weights of another network must go to an optimizer: else nothing tells what is trained. Of a network that is a
    parameter of the function, the callers tell both.
    """
    if path in networks(file).frozen or path in file.once(_switched):
        return None
    if any(binding.kind == "parameter" for binding in file.bindings.of(function, path)) and function:
        return _untrained_parameter(path, function, file)
    if path not in networks(file).evaluated or not _others_are_optimised(path, file):
        return None
    if any(_freezes_inside(value, file) for value in file.once(_made).get(path, ())):
        return None
    pretrained = _is_pretrained(path, file)
    reason = "which is in evaluation mode and in no optimizer of this file"
    return Untrained(0.85 if pretrained else 0.65, pretrained, reason)


def _untrained_parameter(path: str, function: FunctionNode, file: SourceFile) -> Untrained | None:
    """The answer for a parameter of the function."""
    here = path in evaluated_in(function, file)
    optimised_here = _optimised_paths(function, file)
    if _overlaps(path, optimised_here):
        return None
    callers = handed_over(function, path, file)
    for chain in callers:
        if any(_needs_no_gradients(step) for step in chain):
            return None
        if not here and not any(step.path in networks(step.file).evaluated for step in chain):
            return None
        if not optimised_here and not any(_others_are_optimised(step.path, step.file) for step in chain):
            return None  # what the optimizer has, which the function is given, cannot be told
    if callers:
        pretrained = all(_is_pretrained(chain[-1].path, chain[-1].file) for chain in callers)
        reason = "which is in evaluation mode and whose weights the callers give to no optimizer"
        return Untrained(0.85 if pretrained else 0.65, pretrained, reason)
    if not here:
        return None
    reason = f"which `{function.name}` puts into evaluation mode"
    if optimised_here:
        return Untrained(0.65, False, f"{reason} and whose weights its optimizer does not have")
    trained = _in_training_mode(function, file) - {path}
    if not trained or not _READ_ONLY.search(path):
        return None
    return Untrained(0.45, False, f"{reason} while it trains `{min(trained)}`")


def _needs_no_gradients(step: Handed) -> bool:
    """May the weights of what is handed over be frozen, or trained, after all? Also where nothing is known of it."""
    file, path = step.file, step.path
    if step.given is None or not path or path == "self":
        return True
    if path in networks(file).frozen or path in file.once(_switched) or _overlaps(path, optimised_in(file)):
        return True
    return any(_freezes_inside(value, file) for value in file.once(_made).get(path, ()))


def _others_are_optimised(path: str, file: SourceFile) -> bool:
    optimised = optimised_in(file)
    return bool(optimised) and not _overlaps(path, optimised)


def _overlaps(path: str, optimised: Collection[str]) -> bool:
    return any(
        path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.") for other in optimised
    )


def _optimised_paths(function: FunctionNode, file: SourceFile) -> frozenset[str]:
    """Networks whose parameters the function itself gives away."""
    return frozenset(
        path_of(call.func.value)
        for call in file.calls.calls_in(function)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters")
    ) & optimised_in(file)


def _in_training_mode(function: FunctionNode, file: SourceFile) -> frozenset[str]:
    """Networks that the function puts into training mode."""
    return frozenset(
        path_of(call.func.value)
        for call in file.calls.calls_in(function)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "train"
        and not (call.args and is_literal(call.args[0], False))
    ) - {""}


def _is_pretrained(path: str, file: SourceFile) -> bool:
    return any(".from_pretrained(" in file.source(value) for value in file.once(_made).get(path, ()))


def _made(file: SourceFile) -> dict[str, list[ast.expr]]:
    """Dotted name -> what is assigned to it."""
    table: dict[str, list[ast.expr]] = {}
    for assign in file.index.of_type(ast.Assign):
        for target in assign.targets:
            if path := path_of(target):
                table.setdefault(path, []).append(assign.value)
    return table


def _freezes_inside(value: ast.expr, file: SourceFile) -> bool:
    """Does the function or class that makes the network freeze it: `teacher = build_teacher(name)`?"""
    for call in (part for part in walk(value) if isinstance(part, ast.Call)):
        found = file.definition_of(call)
        if found is not None and _FREEZES.search(found[0].source(found[1])):
            return True
        cls = last_name(call.func)
        own = next((one for one in file.index.of_type(ast.ClassDef) if one.name == cls), None)
        made = (file, own) if own is not None else file.repository.class_named(file, cls)
        if made is not None and _FREEZES.search(made[0].source(made[1])):
            return True
    return False


def _switched(file: SourceFile) -> frozenset[str]:
    """Networks whose mode or gradients the file may switch: by `.train()`, or by a call that is named after gradients."""
    found = {
        path_of(call.func.value)
        for call in file.calls_named("train")
        if isinstance(call.func, ast.Attribute) and not (call.args and is_literal(call.args[0], False))
    }
    for call in file.index.of_type(ast.Call):
        if _FREEZES.search(file.source(call.func)):
            found |= {path_of(argument) for argument in call.args}
            if isinstance(call.func, ast.Attribute):
                found.add(path_of(call.func.value))
            statement = file.index.statement_of(call)  # `teacher = load_frozen(path).eval()` is one, too
            if isinstance(statement, ast.Assign):
                found |= {path_of(target) for target in statement.targets}
    return frozenset(found - {""})


def is_given_data(call: ast.Call, file: SourceFile) -> bool:
    """Is all that the network is given made of the batch, so that no gradient has to pass through the network?"""
    if file.context.training_step(call) is None:
        return False
    root = file.index.function_of(call) or file.tree
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return bool(given) and all(
        _computes_nothing(argument, file) and all(_holds_data(root, name, file) for name in _names(argument))
        for argument in given
    )


def _computes_nothing(expr: ast.expr, file: SourceFile) -> bool:
    """Does no network, and no part of the module itself, which may be trained, run in the expression?"""
    return not any(
        isinstance(part, ast.Call)
        and (
            network_of(part, file)
            or network_method_of(part, networks(file).evaluated, file)
            or path_of(part.func).startswith("self.")
        )
        for part in walk(expr)
    )


def _names(expr: ast.expr) -> frozenset[str]:
    """Names that the expression reads, those that its comprehensions bind left out."""
    bound = {
        name.id
        for part in walk(expr)
        if isinstance(part, COMPREHENSIONS)
        for generator in part.generators
        for name in walk(generator.target)
        if isinstance(name, ast.Name)
    }
    return frozenset(
        part.id for part in walk(expr) if isinstance(part, ast.Name) and part.id not in {*bound, "self"}
    )


@remembered
def _holds_data(root: ast.AST, name: str, file: SourceFile) -> bool:
    """Is the name, in the function or module, only given what is made of loop variables and parameters of the step?"""
    function = root if isinstance(root, FUNCTIONS) else None
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if len(seen) > _MOST_NAMES or one in _asked_for(root):
            return False
        for binding in file.bindings.of(function, one):
            if binding.kind == "parameter":
                if _MADE.search(one):
                    return False
            elif binding.kind != "item":
                if binding.value is None or not _computes_nothing(binding.value, file):
                    return False
                waiting += _names(binding.value)
    return True


@remembered
def _asked_for(root: ast.AST) -> frozenset[str]:
    """Names whose gradients are asked for: `x.requires_grad_()`, `x.grad`."""
    return frozenset(
        node.value.id
        for node in own_nodes(root)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in ("requires_grad", "requires_grad_", "grad", "retain_grad")
    )
