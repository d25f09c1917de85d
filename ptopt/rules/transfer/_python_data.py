"""Tensors built from Python values: `torch.tensor(data)` and how it gets to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.rules.code import has_unpacking, keyword_of
from ptopt.rules.shared.moves import Move, is_accelerator, move_of
from ptopt.rules.shared.tensor_lists import device_tensors_in
from ptopt.rules.transfer._hot import Hot, attributes_bound_in, attributes_set_in, bound_in
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, walk
from ptopt.source.torch_names import LEGACY_TYPES

_COMMON = "FloatTensor DoubleTensor HalfTensor LongTensor IntTensor BoolTensor".split()
LEGACY_DTYPES = {"Tensor": "float32", **{name: LEGACY_TYPES[name] for name in _COMMON}}
# The tensor may as well be born on the device when only these stand between its factory and the move.
_BETWEEN = frozenset(
    {"unsqueeze", "view", "reshape", "flatten", "squeeze", "long", "float", "half", "bool", "int"}
    | {"expand", "repeat", "transpose", "permute", "t", "double", "contiguous", "unsqueeze_", "type"}
)
MOVES = frozenset({"to", "cuda", "type_as"})
_CHANGES_LIST = frozenset(
    "append extend insert pop remove clear sort reverse update add setdefault appendleft".split()
)
_PURE_BUILTINS = frozenset(
    {"len", "float", "int", "bool", "list", "tuple", "range", "sorted", "max", "min", "sum", "abs", "round"}
)


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor made of Python data. `node` is the whole expression, the move included."""

    node: ast.Call
    factory: ast.Call
    data: ast.expr
    device: str  # source text
    move: Move | None  # None: the factory call names the device
    legacy: str  # dtype that a legacy constructor implies, "" for `tensor` and `as_tensor`
    reshaped: bool = False  # between the factory and the move stand methods such as `view`


def made_of(node: ast.AST, file: SourceFile) -> Made | None:
    """The tensor that `node` builds from Python data and puts on a device, or None."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
        factory = factory_behind(node.func.value)
        if factory is None or not _is_factory(factory, file):
            return None
        if keyword_of(factory, "device") is not None:
            return None
        move = move_of(node, file)
        return _made(node, factory, move.device, move, file) if move is not None else None
    device = keyword_of(node, "device")
    if device is None or not _is_factory(node, file) or not is_accelerator(device, file):
        return None
    return _made(node, node, file.source(device), None, file)


def factory_behind(tensor: ast.expr) -> ast.Call | None:
    """The call that makes the tensor, behind methods that only rearrange or cast it."""
    while (
        isinstance(tensor, ast.Call)
        and isinstance(tensor.func, ast.Attribute)
        and tensor.func.attr in _BETWEEN
    ):
        if not isinstance(tensor.func.value, ast.Call):
            break
        tensor = tensor.func.value
    return tensor if isinstance(tensor, ast.Call) else None


def _is_factory(call: ast.Call, file: SourceFile) -> bool:
    leaf = called_name(call)
    return (
        leaf in ("tensor", "as_tensor", *LEGACY_DTYPES)
        and file.imports.qualified(call.func) == f"torch.{leaf}"
    )


def _made(node: ast.Call, factory: ast.Call, device: str, move: Move | None, file: SourceFile) -> Made | None:
    if not factory.args or has_unpacking(factory) or keyword_of(factory, "requires_grad") is not None:
        return None
    data = factory.args[0]
    legacy = LEGACY_DTYPES.get(called_name(factory), "")
    if legacy and not isinstance(data, (ast.List, ast.ListComp, ast.Tuple)):
        return None  # `torch.Tensor(5)` is a size, `torch.Tensor(t)` an alias
    if isinstance(data, ast.List) and not data.elts:
        return None  # nothing to copy
    if file.values.is_a(data, "tensor", "tensors", "array"):
        return None
    reshaped = move is not None and move.tensor is not factory
    return Made(node, factory, data, device, move, legacy, reshaped)


def is_host_data(made: Made, file: SourceFile) -> bool:
    """Are the data surely on the host? Not what `as_tensor` may get from the device, nor a list of its tensors."""
    data = made.data
    unknown = isinstance(data, (ast.Name, ast.Attribute)) and not file.values.of(data).kind
    if unknown and called_name(made.factory) == "as_tensor":
        return False
    return not device_tensors_in(data, file)  # of which `tensor-of-tensors` speaks


def number(node: ast.expr) -> bool:
    """Is it a number written out: `0`, `-1.5`, `True`, `float("inf")`?"""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return number(node.operand)
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Name)
            and node.func.id == "float"
            and all(isinstance(a, ast.Constant) for a in node.args)
        )
    return isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float))


def written_out(node: ast.expr) -> bool:
    """Is it made of numbers written out, in lists or not?"""
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(written_out(e) for e in node.elts)
    return number(node)


def is_constant(made: Made, hot: Hot, file: SourceFile) -> bool:
    """Is the data proven to be the same on every pass of the hot place?"""
    if written_out(made.data):
        return True
    names = list(_names(made.data))
    if not names or not all(_is_plain(n) for n in walk(made.data)):
        return False
    if isinstance(hot.node, FUNCTIONS):
        cls = file.index.class_of(hot.node)
        return all(_is_global(n) or (cls is not None and _set_at_init(n, cls)) for n in names)
    bound, mutated = bound_in(hot.node), _mutated_in(hot.node)
    inner = file.index.function_of(made.node) is file.index.function_of(hot.node)
    return inner and not any(
        n.attr in mutated | attributes_bound_in(hot.node) or _is_acted_on(n, hot.node, file)
        if isinstance(n, ast.Attribute)
        else n.id in mutated | bound
        for n in names
    )


def _is_acted_on(name: ast.Attribute, root: ast.AST, file: SourceFile) -> bool:
    """Is a method of the object called that may change the attribute: `schedule.step()` that of `schedule.weight`?"""
    cls = file.index.class_of(name)
    if cls is not None and _set_at_init(name, cls):
        return False
    return file.source(name.value) in _receivers(root, file)


@remembered
def _receivers(root: ast.AST, file: SourceFile) -> frozenset[str]:
    """Objects whose methods the code under `root` calls."""
    return frozenset(
        file.source(node.func.value)
        for node in walk(root)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _PURE_BUILTINS
    return not isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.comprehension, ast.Lambda))


def _names(root: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    for node in walk(root):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id not in _PURE_BUILTINS):
            yield node


@remembered
def _mutated_in(root: ast.AST) -> frozenset[str]:
    """Names of lists and tables that the code under `root` changes by a method."""
    names: set[str] = set()
    for node in walk(root):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _CHANGES_LIST
        ):
            base = node.func.value
            names.add(last_name(base))
    return frozenset(names)


def _is_global(name: ast.Name | ast.Attribute) -> bool:
    """Is it written like a module's constant: `IMAGENET_MEAN`?"""
    return isinstance(name, ast.Name) and name.id.isupper() and len(name.id) > 2


def _set_at_init(name: ast.Name | ast.Attribute, cls: ast.ClassDef) -> bool:
    """Is it `self`, or an attribute of `self` that only `__init__` gives a value?"""
    if isinstance(name, ast.Name):
        return name.id == "self"
    if not (isinstance(name.value, ast.Name) and name.value.id == "self"):
        return False
    at_init, elsewhere = _attributes_set(cls)
    return name.attr in at_init and name.attr not in elsewhere


@remembered
def _attributes_set(cls: ast.ClassDef) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that `__init__` gives a value, and those that other methods do, or change."""
    methods = [m for m in cls.body if isinstance(m, FUNCTIONS)]
    inits = (attributes_set_in(m) for m in methods if m.name == "__init__")
    others = (attributes_set_in(m) | _mutated_in(m) for m in methods if m.name != "__init__")
    return frozenset().union(*inits), frozenset().union(*others)
