"""Does autograd record a pass of a network that the training neither updates nor needs gradients through?"""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile, is_literal
from ptopt.rules.shared.networks import network_method_of, network_of, networks, optimised_in, path_of
from ptopt.source.file import remembered
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, own_nodes, walk

_MOST_NAMES = 12  # between the batch and what the network is given
# What may hold the freezing, or a switch of autograd, where only its call is seen.
_FREEZES = re.compile(r"freez|frozen|_grad|eval_mode|untrain|no_train", re.I)
# Parameters of a step that a network of the caller has made.
_MADE = re.compile(
    r"fake|gen|pred|out|recon|rec_|student|logit|feat|latent|embed|hidden|x_?hat|adv|delta", re.I
)


def is_untrained(path: str, file: SourceFile) -> bool:
    """Is the network put into evaluation mode and left there, with weights that need gradients and no optimizer has?

    The file must give the weights of another network to an optimizer: else nothing tells what it trains.
    """
    known = networks(file)
    optimised = optimised_in(file)
    if path not in known.evaluated or path in known.frozen or not optimised:
        return False
    if any(
        path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.") for other in optimised
    ):
        return False
    return path not in file.once(_switched)


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
