"""Data loaders of a file: what they are built with, and the loops that read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.rules.code import is_call_of
from ptopt.rules.shared.flow import assigned
from ptopt.rules.shared.moves import Move, move_of
from ptopt.rules.shared.ondevice import lies_on_device
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk

_LOADERS = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "torchdata.stateful_dataloader.StatefulDataLoader",
        "monai.data.DataLoader",
    }
)
LOADER_NAMES = frozenset(name.rpartition(".")[2] for name in _LOADERS)
_OF_TENSORS = frozenset({"torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset"})
_HOOK = re.compile(r"dataloader|data_loader|get_loader|(make|build|create|get|prepare)\w*_(loader|data)s?$")
_DEVICE = re.compile(r"(^|_)(device|gpu|cuda)$", re.I)
_ITEM_METHODS = frozenset({"__getitem__", "__getitems__", "__iter__"})
_EVALUATES = re.compile(r"(^|[_.])(val|valid|validation|test|eval|dev|predict|inference|infer)(_|\d|$)", re.I)
_POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
)
# More of them are the tests of a library, or there to keep us busy: each is looked for in each loop.
_MOST_LOADERS = 50
_NOT_TORCH = re.compile(r"""^(["'](np|numpy|jax|tf)["']|(\w+\.)*(NUMPY|JAX|TENSORFLOW))$""")
_MOVERS = (".prepare(", "setup_dataloaders", "LightningModule", "LightningDataModule")


_OTHER_FRAMEWORKS = frozenset("jax flax optax tensorflow keras mlx paddle mindspore".split())


def feeds_other_framework(file: SourceFile) -> bool:
    """Does the file compute with another framework, such as JAX, and send nothing to a device of torch?"""
    return file.once(_feeds_other)


def _feeds_other(file: SourceFile) -> bool:
    imported = {name.partition(".")[0] for name in file.imports.local_names().values()}
    return bool(imported & _OTHER_FRAMEWORKS) and not any(
        move_of(call, file) is not None
        for name in ("to", "cuda", "type_as")
        for call in file.calls_named(name)
    )


def gives_arrays(loader: Loader, file: SourceFile) -> bool:
    """Is its collate function told to give NumPy arrays or tensors of another framework, which no one pins?"""
    collate = loader.arguments.get("collate_fn")
    if isinstance(collate, ast.Name):
        collate = assigned(collate, file)
    if not isinstance(collate, ast.Call):
        return False
    wanted = next((k.value for k in collate.keywords if k.arg == "return_tensors"), None)
    return wanted is not None and bool(_NOT_TORCH.search(file.source(wanted)))


def batches_move_by_framework(file: SourceFile) -> bool:
    """Does the file use a framework that moves batches itself, so that a `.to(device)` on them does nothing?"""
    return file.once(_names_mover)


def _names_mover(file: SourceFile) -> bool:
    return any(mover in file.text for mover in _MOVERS)


@dataclass(frozen=True, slots=True)
class Loader:
    """One `DataLoader(...)` call. `complete` is False when arguments come from somewhere that cannot be read."""

    call: ast.Call
    arguments: dict[str, ast.expr]
    complete: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A loop that reads a loader. `call` is the call that hands the loader to the loop's function, if one does."""

    loop: ast.For
    call: ast.Call | None = None


def loader_of(node: ast.AST, file: SourceFile) -> Loader | None:
    """The loader that `node` builds, or None. Only torch's own class and its drop-in subclasses count."""
    if not isinstance(node, ast.Call) or file.imports.qualified(node.func) not in _LOADERS:
        return None
    arguments = {k.arg: k.value for k in node.keywords if k.arg is not None}
    complete = not any(isinstance(a, ast.Starred) for a in node.args)
    arguments.update(zip(_POSITIONAL, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None:
            known = _literal_table(keyword.value, file)
            complete = complete and known is not None
            arguments.update(known or {})
    return Loader(node, arguments, complete)


def has_workers(loader: Loader) -> bool:
    """Is a number of workers given that is not literally zero?"""
    workers = loader.arguments.get("num_workers")
    return workers is not None and not (isinstance(workers, ast.Constant) and not workers.value)


def hands_out(call: ast.Call, file: SourceFile) -> FunctionNode | None:
    """The function that makes loaders for others, around the call: `train_dataloader`, `build_loaders`."""
    function = file.index.function_of(call)
    return function if function is not None and _HOOK.search(function.name) else None


def makes_device_items(loader: Loader, file: SourceFile) -> bool:
    """Do its items lie on a device: is the data set given one, or does it or the collate function move them there?"""
    collate = loader.arguments.get("collate_fn")
    dataset = loader.arguments.get("dataset")
    return (dataset is not None and has_device_items(dataset, file)) or (
        isinstance(collate, ast.Name)
        and any(f.name == collate.id and _moves(f, file) for f in file.calls.functions)
    )


def has_device_items(dataset: ast.expr, file: SourceFile) -> bool:
    """Is the data set given a device or tensors that lie on one, or does its class, in this file or another, move items there?"""
    made = _unwrapped(dataset, file)
    if made is None:
        return False
    if _is_of_tensors(made, file):
        return any(lies_on_device(tensor, file) for tensor in made.args)
    given = [*(last_name(arg) for arg in made.args), *(keyword.arg or "" for keyword in made.keywords)]
    if any(_DEVICE.search(name) for name in given):
        return True
    name = last_name(made.func)
    own = file.once(_classes).get(name)
    found = (file, own) if own is not None else file.repository.class_named(file, name)
    if found is None:
        return False
    other, cls = found
    return any(
        isinstance(stmt, FUNCTIONS) and stmt.name in _ITEM_METHODS and _moves(stmt, other)
        for stmt in cls.body
    )


def _unwrapped(dataset: ast.expr, file: SourceFile) -> ast.Call | None:
    """The call that makes the data set, through names, `Subset` and `random_split`."""
    value: ast.expr | None = dataset
    for _ in range(4):
        if isinstance(value, ast.Name):
            binding = file.bindings.last_before(value)
            value = binding.value if binding is not None and binding.kind in ("assign", "unpack") else None
        if not isinstance(value, ast.Call):
            return None
        wraps = file.imports.qualified(value.func).startswith("torch.utils.data.") and value.args
        if not wraps or _is_of_tensors(value, file):
            return value
        value = value.args[0]
    return None


def _is_of_tensors(dataset: ast.Call, file: SourceFile) -> bool:
    return file.imports.qualified(dataset.func) in _OF_TENSORS


@remembered
def _moves(function: FunctionNode, file: SourceFile) -> bool:
    """Does the function send a tensor to a device?"""
    return any(move_of(call, file) is not None for call in file.calls.calls_in(function))


def read_from_device(loop: ast.For, file: SourceFile) -> bool:
    """Does the loop read a loader whose items lie on a device already?"""
    return loop in file.once(_loops_over_device_items)


def _loops_over_device_items(file: SourceFile) -> frozenset[ast.For]:
    loaders = (loader_of(call, file) for call in file.index.of_type(ast.Call))
    return frozenset(
        reading.loop
        for loader in loaders
        if loader is not None and makes_device_items(loader, file)
        for reading in readings(loader.call, file)
    )


def is_for_evaluation(call: ast.Call, file: SourceFile) -> bool:
    """Do the names around the call say that the loader serves validation, tests or inference?"""
    statement = file.index.statement_of(call)
    names = [file.source(t) for t in statement.targets] if isinstance(statement, ast.Assign) else []
    function = file.index.function_of(call)
    names += [function.name] if function is not None else []
    return any(_EVALUATES.search(name) for name in names)


def _literal_table(value: ast.expr, file: SourceFile) -> dict[str, ast.expr] | None:
    """Keys and values of `**table` when the table is written out at one place and never changed."""
    if isinstance(value, ast.Name):
        bindings = file.bindings.of(file.index.function_of(value), value.id)
        if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
            return None
        if value.id in file.once(_used_otherwise):
            return None
        value = bindings[0].value
    if isinstance(value, ast.Dict) and all(isinstance(k, ast.Constant) for k in value.keys):
        return {
            str(k.value): v
            for k, v in zip(value.keys, value.values, strict=True)
            if isinstance(k, ast.Constant)
        }
    if is_call_of(value, "dict"):
        named = {k.arg: k.value for k in value.keywords if k.arg is not None}
        return named if len(named) == len(value.keywords) and not value.args else None
    return None


def _used_otherwise(file: SourceFile) -> frozenset[str]:
    """Names that are read elsewhere than as a keyword argument."""
    reads = (n for n in file.index.of_type(ast.Name) if isinstance(n.ctx, ast.Load))
    return frozenset(n.id for n in reads if not isinstance(file.index.parent(n), ast.keyword))


def readings(loader: ast.Call, file: SourceFile) -> Iterator[Reading]:
    """Loops that read the loader: by its name, its attribute, or as a parameter of a function it is passed to."""
    if len(file.calls_named("DataLoader")) > _MOST_LOADERS:
        return
    for scope, name in _handles(loader, file):
        for loop in file.index.of_type(ast.For):
            if _refers(loop.iter, scope, name, file):
                yield Reading(loop)
        if isinstance(scope, ast.ClassDef):
            continue
        for call in file.calls.calls_in(scope):
            parameter = _parameter(call, name, file)
            if parameter is None:
                continue
            function, local = parameter
            for loop in file.index.of_type(ast.For):
                if file.index.function_of(loop) is function and _refers(loop.iter, function, local, file):
                    yield Reading(loop, call)


def _handles(value: ast.expr, file: SourceFile) -> Iterator[tuple[FunctionNode | ast.ClassDef | None, str]]:
    """Scope and name of what holds the value: variables, attributes of `self`, results of the function around it."""
    node: ast.AST = value
    parent = file.index.parent(node)
    if isinstance(parent, ast.Call) and node in parent.args:
        node, parent = parent, file.index.parent(parent)  # accelerator.prepare(DataLoader(...))
    if isinstance(parent, ast.Return):
        function = file.index.function_of(parent)
        for call in file.calls.callers(function) if function is not None else ():
            if isinstance(file.index.parent(call), ast.Assign):
                yield from _handles(call, file)
        return
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    scope = file.index.function_of(value)
    for target in targets:
        if isinstance(target, ast.Name):
            yield scope, target.id
            yield from _returned(target.id, scope, file)
            for call in file.calls.calls_in(scope):
                yield from _given_to_object(call, target.id, file)
        elif (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ):
            yield file.index.class_of(target), target.attr


def _returned(
    name: str, scope: FunctionNode | None, file: SourceFile
) -> Iterator[tuple[FunctionNode | ast.ClassDef | None, str]]:
    """Handles in the callers of a function that returns the variable: alone, or as one of a tuple."""
    if scope is None:
        return
    for stmt in file.index.of_type(ast.Return):
        if file.index.function_of(stmt) is not scope or stmt.value is None:
            continue
        parts = stmt.value.elts if isinstance(stmt.value, ast.Tuple) else [stmt.value]
        positions = [i for i, part in enumerate(parts) if isinstance(part, ast.Name) and part.id == name]
        for call in file.calls.callers(scope) if positions else ():
            assign = file.index.parent(call)
            if not isinstance(assign, ast.Assign) or len(assign.targets) != 1:
                continue
            target = assign.targets[0]
            if isinstance(stmt.value, ast.Tuple):
                if not isinstance(target, ast.Tuple) or len(target.elts) != len(parts):
                    continue
                target = target.elts[positions[0]]
            if isinstance(target, ast.Name):
                yield file.index.function_of(call), target.id


def _refers(
    iterated: ast.expr, scope: FunctionNode | ast.ClassDef | None, name: str, file: SourceFile
) -> bool:
    """Does a loop read the loader `name`: `loader`, `enumerate(loader)`, `tqdm(loader, ...)`?"""
    inner = _wrapped(iterated)
    if isinstance(inner, ast.Name) and inner.id != name:  # bar = tqdm(loader)
        binding = file.bindings.last_before(inner)
        if binding is not None and binding.kind == "assign" and isinstance(binding.value, ast.Call):
            inner = _wrapped(binding.value)
    if isinstance(scope, ast.ClassDef):
        own = (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        )
        return (
            own
            and isinstance(inner, ast.Attribute)
            and inner.attr == name
            and file.index.class_of(inner) is scope
        )
    if not (isinstance(inner, ast.Name) and inner.id == name):
        return False
    function = file.index.function_of(inner)
    while function is not scope:
        if function is None or file.bindings.of(function, name):
            return False
        function = file.index.function_of(function)
    return True


def _wrapped(expr: ast.expr) -> ast.expr:
    """What `enumerate(tqdm(loader))` goes over."""
    while isinstance(expr, ast.Call) and expr.args:
        expr = expr.args[0]
    return expr


def _parameter(call: ast.Call, name: str, file: SourceFile) -> tuple[FunctionNode, str] | None:
    """The function of this file that receives the variable `name`, and its own name for it."""
    if not _passes(call, name):
        return None
    function = file.calls.resolve(call)
    local = _local_name(call, name, function, file) if function is not None else ""
    return (function, local) if function is not None and local else None


def _given_to_object(call: ast.Call, name: str, file: SourceFile) -> Iterator[tuple[ast.ClassDef, str]]:
    """Attributes that hold the variable `name` after `Class(..., name)`."""
    if not isinstance(call.func, ast.Name) or not _passes(call, name):
        return
    called = call.func.id
    cls = file.once(_classes).get(called)
    init = file.calls.method(cls, "__init__") if cls is not None else None
    local = _local_name(call, name, init, file) if init is not None else ""
    if cls is None or init is None or not local:
        return
    for node in own_nodes(init):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == local:
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    yield cls, target.attr


def _classes(file: SourceFile) -> dict[str, ast.ClassDef]:
    """The first class of each name."""
    return {cls.name: cls for cls in reversed(list(file.index.of_type(ast.ClassDef)))}


def _passes(call: ast.Call, name: str) -> bool:
    return any(
        isinstance(a, ast.Name) and a.id == name for a in [*call.args, *(k.value for k in call.keywords)]
    )


def _local_name(call: ast.Call, name: str, function: FunctionNode, file: SourceFile) -> str:
    """The parameter of the called function that takes the variable `name`, or ""."""
    for keyword in call.keywords:
        if keyword.arg is not None and isinstance(keyword.value, ast.Name) and keyword.value.id == name:
            return keyword.arg
    parameters = [*function.args.posonlyargs, *function.args.args]
    if isinstance(file.index.parent(function), ast.ClassDef):
        parameters = parameters[1:]
    for argument, parameter in zip(call.args, parameters, strict=False):
        if isinstance(argument, ast.Name) and argument.id == name:
            return parameter.arg
    return ""


@remembered
def batch_names(loop: ast.For) -> frozenset[str]:
    """Names of the batch and of its parts in a loop over a loader; the counter of `enumerate` is not one."""
    target: ast.expr = loop.target
    counted = isinstance(_enumerated(loop.iter), ast.Call)
    if counted and isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
        target = target.elts[1]
    names = {n.id for n in walk(target) if isinstance(n, ast.Name)}
    for node in walk(loop):
        if isinstance(node, ast.Assign) and _parts(node.value) & names:
            names.update(n.id for t in node.targets for n in walk(t) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.comprehension, ast.For)) and root_name(node.iter) in names:
            names.update(n.id for n in walk(node.target) if isinstance(n, ast.Name))
    return frozenset(names)


def batch_moves(loop: ast.For, file: SourceFile) -> Iterator[Move]:
    """Moves to a device of tensors of the loop's batch; not those of a batch that a loop within it reads."""
    names = batch_names(loop)
    for node in own_nodes(loop):
        move = move_of(node, file)
        if move is not None and root_name(move.tensor) in names and not _of_inner_batch(move, loop, file):
            yield move


def _of_inner_batch(move: Move, loop: ast.For, file: SourceFile) -> bool:
    """Is it of the batch of a loop within `loop` that reads something else, such as a validation every n steps?"""
    for inner in file.index.loops_of(move.call):
        if inner is loop:
            return False
        if isinstance(inner, ast.For) and root_name(move.tensor) in batch_names(inner):
            read = {node.id for node in walk(inner.iter) if isinstance(node, ast.Name)}
            if not read & batch_names(loop):
                return True
    return False


def _parts(value: ast.expr) -> set[str]:
    """Roots of the value, or of the elements when it is a tuple: `a, b = batch["a"], batch["b"]`."""
    return {root_name(part) for part in (value.elts if isinstance(value, ast.Tuple) else [value])}


def root_name(expr: ast.expr) -> str:
    """`batch` of `batch["x"][0]` and of `batch.items()`; "" when anything else is done to it."""
    if (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and expr.func.attr in ("items", "values")
    ):
        expr = expr.func.value
    while isinstance(expr, (ast.Subscript, ast.Attribute)):
        expr = expr.value
    return expr.id if isinstance(expr, ast.Name) else ""


def _enumerated(expr: ast.expr) -> ast.expr | None:
    while isinstance(expr, ast.Call):
        if is_call_of(expr, "enumerate"):
            return expr
        if not expr.args:
            return None
        expr = expr.args[0]
    return None
