"""Scripts that fit tensors by their gradients, poses, latents or an image, and train no network."""

from __future__ import annotations

import ast
import re

from ptopt.audit.evaluate import Evaluator
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.optimizers import is_of_torch
from ptopt.audit.options import Options
from ptopt.source.bindings import is_self

_DEEPEST = 8
_MAKES_OPTIMIZER = re.compile(
    r"optim|^(Adam\w*|SGD\w*|LBFGS|Adagrad|Adadelta|RMSprop|Rprop|Lion\w*|LAMB|Lamb|LARS|Muon|Fused\w+)$",
    re.I,
)
_NO_OPTIMIZER = re.compile(r"lr_scheduler|zero_grad|\bstep$")
_MADE = re.compile(
    r"^torch\.((zeros|ones|empty|full|rand|randn)(_like)?|tensor|as_tensor|from_numpy|Tensor|FloatTensor|eye|linspace|"
    r"cuda\.FloatTensor|autograd\.Variable)$|^Variable$"
)
_FREED = frozenset({"detach", "requires_grad_", "clone"})
_MOVED = frozenset(
    "to cuda cpu float double half contiguous view reshape repeat expand unsqueeze squeeze uniform_ normal_ data".split()
)


def fits_tensors(live: Live) -> bool:
    """Is each optimizer that the script may make given tensors alone that the code makes, and no parameters?

    An `nn.Parameter` is part of what a network or a scene is made of: who fits one trains a model.
    """
    evaluator = Evaluator(live, live.once(Options))
    names = {function.name for function in live.functions}
    found = False
    for module, call, name in live.found(_optimizer):
        if evaluator.runs(call, module).truth is False:
            continue
        if is_of_torch(name):
            given = (
                call.args[0]
                if call.args
                else next((k.value for k in call.keywords if k.arg == "params"), None)
            )
            if given is None or not _are_free(module, given, 0):
                return False
            found = True
        elif call.args and name.rpartition(".")[2] not in names:
            return False  # of another package
    return found


def _optimizer(module: Module, call: ast.Call) -> str | None:
    """The name of what is called, where it may make an optimizer."""
    name = qualified(module, call.func)
    last = name.rpartition(".")[2]
    if not _MAKES_OPTIMIZER.search(last) or _NO_OPTIMIZER.search(name):
        return None
    return name


def _are_free(module: Module, given: ast.expr, depth: int) -> bool:
    """Is it a tensor that is no parameter of a network, or a list of such tensors?"""
    if depth > _DEEPEST:
        return False
    if isinstance(given, (ast.List, ast.Tuple)):
        return bool(given.elts) and all(_are_free(module, part, depth + 1) for part in given.elts)
    if isinstance(given, ast.Starred):
        return _are_free(module, given.value, depth + 1)
    if isinstance(given, ast.Dict):
        held = [
            v
            for k, v in zip(given.keys, given.values, strict=True)
            if k is not None and text_of(k) in ("'params'", '"params"')
        ]
        return bool(held) and all(_are_free(module, value, depth + 1) for value in held)
    if isinstance(given, ast.IfExp):
        return _are_free(module, given.body, depth + 1) and _are_free(module, given.orelse, depth + 1)
    if isinstance(given, ast.BinOp):
        return _are_free(module, given.left, depth + 1) and _are_free(module, given.right, depth + 1)
    if isinstance(given, ast.Call):
        return _is_made(module, given, depth)
    values = _held(module, given)
    return bool(values) and all(_are_free(module, value, depth + 1) for value in values)


def _is_made(module: Module, call: ast.Call, depth: int) -> bool:
    name = qualified(module, call.func)
    if _MADE.match(name):
        return True
    if not isinstance(call.func, ast.Attribute):
        return (
            name in ("list", "tuple") and len(call.args) == 1 and _are_free(module, call.args[0], depth + 1)
        )
    if call.func.attr in _FREED:
        return ".parameters" not in text_of(call.func.value)
    return call.func.attr in _MOVED and _are_free(module, call.func.value, depth + 1)


def _held(module: Module, given: ast.expr) -> list[ast.expr]:
    """All that a name or an attribute of `self` is given; nothing where some of that is not seen."""
    if isinstance(given, ast.Name):
        function = module.file.index.function_of(given)
        bound = module.file.bindings.of(function, given.id)
        while not bound and function is not None:
            function = module.file.index.function_of(function)
            bound = module.file.bindings.of(function, given.id)
        again = any(
            b.kind == "assign" and module.file.index.parent(b.node) is function
            for b in bound
            if b.line < given.lineno
        )
        if again:  # what the caller gave is not what is fitted: `pose = pose.detach().clone()`
            bound = [b for b in bound if b.kind != "parameter"]
        values = [b.value for b in bound if b.kind == "assign" and b.value is not None]
        holder = module.file.text if function is None else module.file.source(function)
        grows = re.search(rf"\b{re.escape(given.id)}\.(append|extend|insert)\(", holder)
        return values if len(values) == len(bound) and not grows else []
    cls = module.file.index.class_of(given) if is_self(given) else None
    if cls is None or not isinstance(given, ast.Attribute):
        return []
    value = module.file.bindings.attribute(cls, given.attr)
    return [] if value is None else [value]
