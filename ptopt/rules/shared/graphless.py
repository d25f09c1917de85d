"""Passes that leave no graph to speak of, though autograd is on: of frozen networks, and of modules that only read buffers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.networks import frozen_in, network_of, networks, path_of
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk
from ptopt.source.repository import Repository

_DEEPEST = 2  # methods of the same object that are followed
_GIVE_ITSELF = frozenset({"to", "eval", "train", "cuda", "cpu", "half", "float", "bfloat16"})
_ASKS = frozenset({"size", "dim", "numel", "shape", "ndim", "device", "dtype", "type"})  # of a tensor's form
_NO_NETWORK = re.compile(r"token|processor|vocab|log", re.I)
# Of the parts of `torch.nn`, those without weights.
_WEIGHTLESS = re.compile(
    r"^torch\.nn\.(Dropout\w*|Identity|ReLU|GELU|SiLU|Sigmoid|Tanh|Softmax|functional\..+)$"
)
_OF_MODULES = frozenset(
    "parameters named_parameters buffers named_buffers modules children train eval".split()
)


def records_nothing(call: ast.Call, file: SourceFile) -> bool:
    """Does the pass record no graph, by the code that it runs: of frozen networks alone, or of none with weights?

    False where that code is not found. Where several may run, all of them have to record nothing.
    """
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if _looks_up(func, file):
        return True
    if isinstance(func.value, ast.Name) and func.value.id == "self":
        return False
    around = file.repository
    answers = [
        _frozen_only(function, other, around, _DEEPEST) for other, function in around.definitions(file, call)
    ]
    answers += [
        _attribute_records_nothing(value, other, around)
        for other, value in around.assigned_to_self(file, func.attr)
        if last_name(value) != func.attr  # `self.encode = model.encode` hands on what another class has
    ]
    return bool(answers) and all(answers)


# -- frozen networks ---------------------------------------------------------------------------------------


def _attribute_records_nothing(value: ast.expr, file: SourceFile, around: Repository) -> bool:
    """Of `self.name = value`: a method of the same object, or an object that is no module."""
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        cls = file.index.class_of(value)
        method = file.calls.method(cls, value.attr) if cls is not None else None
        return method is not None and _frozen_only(method, file, around, _DEEPEST)
    found = _class_made(value, file, around)
    return found is not None and not found[1].bases  # a helper, and none of the weights of the network


def _frozen_only(function: FunctionNode, file: SourceFile, around: Repository, depth: int) -> bool:
    """Does the method run frozen networks, and nothing else that may have weights?"""
    cls = file.index.class_of(function)
    if cls is None or depth == 0:
        return False
    found = False
    for call in file.calls.calls_in(function):
        path = path_of(call.func)
        if not path.startswith("self."):
            if last_name(call.func) == "super" or network_of(call, file):
                return False
            continue
        name = path.split(".")[1]
        method = file.calls.method(cls, name)
        if method is not None:
            if not _frozen_only(method, file, around, depth - 1):
                return False
            found = True
        elif name in _OF_MODULES or _NO_NETWORK.search(name):
            continue
        elif not _is_frozen(f"self.{name}", cls, file, around):
            return False
        else:
            found = True
    return found and not any(_is_parameter(node, cls, file) for node in own_nodes(function))


def _is_parameter(node: ast.AST, cls: ast.ClassDef, file: SourceFile) -> bool:
    """`self.scale` that is an `nn.Parameter`."""
    if not isinstance(node, ast.Attribute) or path_of(node) != f"self.{node.attr}":
        return False
    value = file.bindings.attribute(cls, node.attr)
    return isinstance(value, ast.Call) and last_name(value.func) == "Parameter"


def _is_frozen(path: str, cls: ast.ClassDef, file: SourceFile, around: Repository) -> bool:
    """Is the attribute frozen where it stands, or is what it is given frozen by what makes it?"""
    if path in networks(file).frozen:
        return True
    values = [
        assign.value
        for assign in file.index.of_type(ast.Assign)
        if file.index.class_of(assign) is cls and any(path_of(target) == path for target in assign.targets)
    ]
    answers = [_made_frozen(value, file, around) for value in values]
    return True in answers and False not in answers


def _made_frozen(value: ast.expr, file: SourceFile, around: Repository) -> bool | None:
    """`load_frozen(name)` whose function freezes all that it returns, or an object that freezes itself when it is made.

    None where what makes it is not found: of two that one attribute may be given, one is often in a file that is not read.
    """
    value = _without_moves(value)
    if isinstance(value, ast.Constant) and value.value is None:
        return None
    if not isinstance(value, ast.Call):
        return False
    made = _class_made(value, file, around)
    if made is not None:
        init = made[0].calls.method(made[1], "__init__")
        return init is not None and "self" in frozen_in(init, made[0])
    own = file.calls.resolve(value)
    found = (file, own) if own is not None else around.definition(file, value)
    if found is None:
        return False if file.imports.qualified(value.func).startswith("torch.") else None
    other, function = found
    frozen = frozen_in(function, other)
    returned = [path_of(node.value) if node.value else "" for node in _returns(function)]
    return bool(returned) and all(path in frozen for path in returned)


def _returns(function: FunctionNode) -> Iterator[ast.Return]:
    return (node for node in own_nodes(function) if isinstance(node, ast.Return))


def _without_moves(value: ast.expr) -> ast.expr:
    """`make()` of `make().to(device).eval()`."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _GIVE_ITSELF
        and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return value


def _class_made(
    value: ast.expr, file: SourceFile, around: Repository
) -> tuple[SourceFile, ast.ClassDef] | None:
    """The class of the repository that `value` makes an object of."""
    value = _without_moves(value)
    if not isinstance(value, ast.Call):
        return None
    name = last_name(value.func)
    own = next((cls for cls in file.index.of_type(ast.ClassDef) if cls.name == name), None)
    return (file, own) if own is not None else around.class_named(file, name)


# -- buffers -----------------------------------------------------------------------------------------------


def _looks_up(func: ast.Attribute, file: SourceFile) -> bool:
    """Is it a part of the object itself that has no weights, and takes what it gives from its buffers, by position or size?"""
    cls = file.index.class_of(func)
    if cls is None or path_of(func) != f"self.{func.attr}":
        return False
    value = file.bindings.attribute(cls, func.attr)
    made = _class_made(value, file, file.repository) if value is not None else None
    if made is None:
        return False
    other, part = made
    forward = other.calls.method(part, "forward")
    is_module = [other.imports.qualified(base) == "torch.nn.Module" for base in part.bases] == [True]
    return is_module and forward is not None and _has_no_weights(part, other) and _only_positions(forward)


def _has_no_weights(cls: ast.ClassDef, file: SourceFile) -> bool:
    """Is each attribute computed by functions of torch or NumPy, or a part without weights?"""
    for assign in file.index.of_type(ast.Assign, ast.AnnAssign):
        targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
        if file.index.class_of(assign) is not cls or not any(path_of(t).startswith("self.") for t in targets):
            continue
        for part in walk(assign.value) if assign.value is not None else ():
            if isinstance(part, ast.Call):
                name = file.imports.qualified(part.func)
                of_torch = name.startswith("torch.") and not name.startswith("torch.nn.")
                if not (of_torch or name.startswith(("numpy.", "math.")) or _WEIGHTLESS.match(name)):
                    return False
    return not any(
        isinstance(n, ast.Attribute)
        and n.attr in ("register_parameter", "add_module", "Parameter", "setattr")
        for n in walk(cls)
    )


def _only_positions(forward: FunctionNode) -> bool:
    """Are the inputs only used as indices, or asked for their form, so that no gradient can flow to them?"""
    inputs = {a.arg for a in [*forward.args.args[1:], *forward.args.kwonlyargs]}
    free: set[ast.AST] = set()  # what may read them
    for node in own_nodes(forward):
        if isinstance(node, ast.Subscript):
            free.update(walk(node.slice))
        elif isinstance(node, ast.Attribute) and node.attr in _ASKS:
            free.add(node.value)
        elif isinstance(node, FUNCTIONS):
            return False
    return all(
        node in free
        for node in own_nodes(forward)
        if isinstance(node, ast.Name) and node.id in inputs and isinstance(node.ctx, ast.Load)
    )
