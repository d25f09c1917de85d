"""Loops and comprehensions that take one slice of a tensor in each iteration."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from weakref import ReferenceType

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._calls import int_literal, names_in
from ptopt.rules.shared.flow import assigned
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.index import FunctionNode, children_of, own_nodes
from ptopt.source.torch_names import KEEPS_TENSOR, TENSOR_FACTORIES, TENSOR_ONLY_METHODS
from ptopt.source.uses import REPORTED, RETURNED, STORED

# Methods that start no kernel.
VIEWS = frozenset(
    "view reshape unsqueeze squeeze permute transpose t T contiguous detach size dim expand expand_as view_as flatten chunk "
    "split unbind narrow select numel item tolist cpu numpy cuda to requires_grad_ data_ptr float long int bool half".split()
)
# Calls whose result has as many elements as the data say: one iteration may give more than another.
RAGGED = frozenset(
    "nonzero unique masked_select argwhere nms batched_nms unique_consecutive linear_sum_assignment bincount tolist "
    "connectedComponents multinomial split narrow item".split()
)
_SIZED = frozenset("arange linspace logspace randperm eye".split())  # as long as their argument says
_STACKING = frozenset(
    "stack cat concat tensor FloatTensor LongTensor vstack hstack as_tensor Tensor pad_sequence".split()
)
_WRAPPERS = frozenset("tqdm list tuple reversed trange iter track sorted".split())


@dataclass(slots=True)
class Slices:
    """What one loop or list comprehension does with the slices that it takes."""

    place: ast.For | ast.ListComp | ast.GeneratorExp
    _file: ReferenceType[SourceFile]  # which keeps this
    index: set[str] = field(default_factory=set)  # names of indices, and of numbers computed from them
    taken: set[str] = field(default_factory=set)  # names that hold a slice, or a value made of one
    others: set[str] = field(
        default_factory=set
    )  # names that hold another value in each iteration, such as a length
    sources: list[ast.expr] = field(default_factory=list)  # tensors that are sliced
    first: ast.expr | None = None  # the first slice
    trips: int = 0  # where the code says how many iterations
    limit: ast.expr | None = None
    ops: list[ast.expr] = field(default_factory=list)  # calls and arithmetic that start kernels for a slice
    modules: list[ast.Call] = field(default_factory=list)  # networks called with a slice
    unknown: list[ast.Call] = field(default_factory=list)  # other calls that get a slice
    stores: int = 0  # `out[i] = ...`
    appends: set[str] = field(default_factory=set)
    looked_up: int = 0  # objects that an index picks from a list or a dictionary
    ragged: bool = False
    cut: bool = False  # a slice or a mask that the data choose picks a part of what is sliced
    cut_of: ast.expr | None = None  # what is sliced so, with all its rows
    # The entries are no slices of one tensor, or blocks as large as the memory lets them be.
    apart: bool = False
    _touch: dict[ast.AST, bool] = field(default_factory=dict)

    @property
    def file(self) -> SourceFile:
        held = self._file()
        if held is None:
            raise ReferenceError("the file is gone that this was computed of")
        return held

    def touches(self, node: ast.AST) -> bool:
        """Does the expression hold a slice, or a value made of one?"""
        known = self._touch.get(node)
        if known is None:
            if isinstance(node, ast.Name):
                known = node.id in self.taken
            elif isinstance(node, ast.Lambda):
                known = False
            elif isinstance(node, ast.Subscript) and self.indexed(node.slice):
                known = True
            else:
                known = any(self.touches(child) for child in children_of(node))
            self._touch[node] = known
        return known

    def indexed(self, node: ast.AST) -> bool:
        """Does the expression hold an index of the loop?"""
        if isinstance(node, ast.Name):
            return node.id in self.index
        return any(self.indexed(child) for child in children_of(node))


def slices_of(place: ast.For | ast.ListComp | ast.GeneratorExp, file: SourceFile) -> Slices | None:
    """What the loop does with slices of tensors, or None when it takes none, or one iteration needs another."""
    generator = place if isinstance(place, ast.For) else place.generators[0]
    found = Slices(place, ReferenceType(file))
    if not _bind(generator.target, generator.iter, found) or not (found.index or found.taken):
        return None
    nodes = (
        list(own_nodes(place))
        if not isinstance(place, ast.For)
        else [n for stmt in place.body for n in [stmt, *own_nodes(stmt)]]
    )
    _follow(nodes, found)
    if _writes_back(nodes, found):
        return None
    _sort(nodes, found)
    if found.apart or not found.sources or (isinstance(place, ast.For) and _carries(place, nodes, file)):
        return None
    return found


def stacked(found: Slices) -> bool:
    """Do the results become one tensor?"""
    file, place = found.file, found.place
    if not isinstance(place, ast.For):
        parent = file.index.parent(place)
        while isinstance(parent, (ast.List, ast.Tuple, ast.ListComp)):
            parent = file.index.parent(parent)
        if isinstance(parent, ast.Call):
            return called_name(parent) in _STACKING
        if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
            return False
        names = {parent.targets[0].id}
    else:
        names = found.appends
    function = file.index.function_of(place)
    return any(
        call.lineno >= place.lineno
        and called_name(call) in _STACKING
        and call.args
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id in names
        for call in file.calls.calls_in(function)
    )


def _bind(target: ast.expr, iterable: ast.expr, found: Slices) -> bool:
    """Notes the names that the target binds; False when the loop runs over something else than indices and tensors."""
    file = found.file
    while isinstance(iterable, ast.Call) and called_name(iterable) in _WRAPPERS and iterable.args:
        iterable = iterable.args[0]
    name = called_name(iterable) if isinstance(iterable, ast.Call) else ""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name):
        if name == "range" and isinstance(target, ast.Name) and iterable.args:
            limits = [int_literal(arg) for arg in iterable.args]
            if len(limits) == 3 and limits[2] not in (1, -1):
                return False  # blocks of rows, which are as large as the memory lets them be
            found.limit = iterable.args[min(1, len(iterable.args) - 1)]
            start = limits[0] or 0 if len(limits) > 1 else 0
            last = limits[min(1, len(limits) - 1)]
            found.trips = max(last - start, 1) if last is not None else 0
            found.index.add(target.id)
            return True
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and iterable.args:
            if isinstance(target.elts[0], ast.Name):
                found.index.add(target.elts[0].id)
            return _bind(target.elts[1], iterable.args[0], found)
        if name == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(iterable.args):
            bound = [_bind(t, a, found) for t, a in zip(target.elts, iterable.args, strict=True)]
            return any(bound)
    blocks = name in ("chunk", "split", "unbind", "parameters")
    if (
        not isinstance(target, ast.Name)
        or blocks
        or not (file.values.is_tensor(iterable) or _rows_go_into_torch(target, iterable, found))
    ):
        found.others |= names_in(target)
        return False
    binding = file.bindings.last_before(iterable) if isinstance(iterable, ast.Name) else None
    made_by = binding.value if binding is not None and binding.kind == "item" else None
    if (
        made_by is not None
        and not file.values.is_tensor(made_by)
        and not (isinstance(iterable, ast.Name) and _entry_has_shape(iterable, file))
    ):
        return False  # one of several: perhaps a tuple of tensors
    found.taken.add(target.id)
    found.sources.append(iterable)
    found.first = found.first or target
    return True


def _rows_go_into_torch(target: ast.Name, iterable: ast.expr, found: Slices) -> bool:
    """Does the function ask what is iterated for its shape, and give its rows to torch?"""
    file = found.file
    if not isinstance(iterable, (ast.Name, ast.Attribute)) or file.values.of(iterable).kind:
        return False
    if not has_shape(iterable, file) and not (
        isinstance(iterable, ast.Name) and _entry_has_shape(iterable, file)
    ):
        return False
    return any(_goes_into_torch(load, file) for load in file.uses.loads_in(found.place, target.id))


def _entry_has_shape(name: ast.Name, file: SourceFile) -> bool:
    """Is it an entry of a list, of which the function asks another entry for its shape: `z` of `zs`, beside `zs[0].shape`?"""
    binding = file.bindings.last_before(name)
    if binding is None or binding.kind != "item" or binding.value is None:
        return False
    iterable: ast.expr = binding.value
    path = list(binding.path)
    while isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.args and path:
        wrapper = iterable.func.id
        if wrapper == "enumerate" and path[0] == 1:
            iterable = iterable.args[0]
        elif wrapper == "zip" and path[0] < len(iterable.args):
            iterable = iterable.args[path[0]]
        else:
            return False
        path = path[1:]
    if path:
        return False
    holder = re.escape(ast.unparse(iterable))
    shaped = file.once(_shaped).get(file.index.function_of(name), ())
    return any(re.fullmatch(rf"{holder}\[-?\d+\]", text) for text in shaped)


def _follow(nodes: list[ast.AST], found: Slices) -> None:
    """Names that are computed from an index or a slice."""
    for node in nodes:
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [
            n.id
            for t in targets
            for n in ([t] if isinstance(t, ast.Name) else getattr(t, "elts", ()))
            if isinstance(n, ast.Name)
        ]
        if found.touches(node.value):
            found.taken.update(names)
            found._touch.clear()
        elif found.indexed(node.value) and not any(isinstance(n, ast.Subscript) for n in own_nodes(node)):
            found.index.update(names)
            found._touch.clear()


def _carries(loop: ast.For, nodes: list[ast.AST], file: SourceFile) -> bool:
    """Does an iteration read what the one before has left: a name, an attribute, an element that it stores?"""
    stores: dict[str, tuple[int, int]] = {}
    top: set[str] = set()
    own: set[str] = set()  # stored by a statement that reads it
    loads: dict[str, tuple[int, int]] = {}
    sums: set[str] = set()
    written: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    holders: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, (ast.Name, ast.Attribute)):
            sums.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and (summand := _added_to(node)) is not None:
            sums.add(summand.id)
            holders.add(summand)
        elif isinstance(node, ast.Assign):
            at = (node.end_lineno or 0, node.end_col_offset or 0)
            values = {
                ast.unparse(n)
                for n in own_nodes(node)
                if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
            }
            for target in node.targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(part, (ast.Name, ast.Attribute)):
                        name = ast.unparse(part)
                        if name not in stores and node in loop.body:
                            top.add(name)
                        stores.setdefault(name, at)
                        if name in values:
                            own.add(name)
        if isinstance(node, ast.Subscript) and node not in holders and not _only_measured(node, file):
            if isinstance(node.ctx, ast.Store):
                holders.update(_holders(node))
            base = ast.unparse(base_of(node))
            place = written if isinstance(node.ctx, ast.Store) else read
            place.setdefault(base, set()).add(ast.unparse(node))
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if node in holders:
                continue
            loads.setdefault(ast.unparse(node), (node.lineno, node.col_offset))
    # Rows that torch functions replace carry nothing on. Rows that are cut, or copied to the host, do more than kernels.
    given = {
        replaced.id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and file.imports.qualified(node.value.func).startswith("torch.")
        for replaced in node.targets
        if isinstance(replaced, ast.Name)
    } & names_in(loop.target)
    for name, at in stores.items():
        if name in loads and name not in given and (loads[name] < at or (name in own and name not in top)):
            return True
    if any(name in loads for name in sums):
        return True
    return any(read.get(base, set()) - texts for base, texts in written.items())


def _added_to(assign: ast.Assign) -> ast.Name | None:
    """`total` in the value of `total = total + a + b`, where that is all that the statement reads of it."""
    target, value = assign.targets[0], assign.value
    if len(assign.targets) != 1 or not isinstance(target, ast.Name):
        return None
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        for side in (value.left, value.right):
            if isinstance(side, ast.Name) and side.id == target.id:
                named = [n for n in own_nodes(assign) if isinstance(n, ast.Name) and n.id == target.id]
                return side if len(named) == 2 else None
        value = value.left
    return None


def _writes_back(nodes: list[ast.AST], found: Slices) -> bool:
    """Does it train, or use a list that it fills? Or is what it calls another function in each iteration?"""
    filled: set[str] = set()
    loads: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return True  # what the iteration calls may read it
        if isinstance(node, ast.Name):
            loads[node.id] = loads.get(node.id, 0) + 1
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        if (
            name in ("append", "extend")
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            filled.add(node.func.value.id)
        if name == "isinstance" and any(found.touches(arg) for arg in node.args):
            return True  # a list of different things
        if name in ("backward", "step", "zero_grad", "grad", "DataLoader", "seed"):
            return True
        func = node.func
        if (
            isinstance(func, ast.Subscript)
            and found.indexed(func.slice)
            or isinstance(func, ast.Name)
            and func.id in found.taken
        ):
            return True
    found.appends = filled
    return any(loads.get(name, 0) > 1 for name in filled if name not in found.index) and any(
        isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id in filled for n in nodes
    )


def _sort(nodes: list[ast.AST], found: Slices) -> None:
    """Sorts what the iteration does with its slices."""
    file = found.file
    for node in nodes:
        if isinstance(node, ast.Subscript):
            _subscript(node, found)
        elif isinstance(node, ast.BinOp) and found.touches(node) and file.values.is_tensor(node):
            if not isinstance(file.index.parent(node), ast.BinOp):
                found.ops.append(node)
        elif isinstance(node, ast.Call):
            name = called_name(node)
            touched = [a for a in [*node.args, *(k.value for k in node.keywords)] if found.touches(a)]
            varies = touched or any(names_in(a) & found.others for a in node.args)
            ragged = name in RAGGED and (touched or found.touches(node.func)) and not _is_score(node, file)
            if ragged or (name in _SIZED and varies):
                found.ragged = True
            qualified = file.imports.qualified(node.func)
            if qualified.startswith("torch."):
                if touched and name not in TENSOR_FACTORIES | VIEWS and name not in _STACKING:
                    found.ops.append(node)
            elif touched and _is_network(node.func, file):
                found.modules.append(node)
            elif isinstance(node.func, ast.Attribute) and found.touches(node.func.value):
                receiver = node.func.value
                if (
                    name in KEEPS_TENSOR
                    and name not in VIEWS
                    and file.values.of(receiver).kind in ("tensor", "")
                ):
                    found.ops.append(node)
            elif (
                touched and not qualified and name not in ("append", "extend", "int", "float", "len", "print")
            ):
                found.unknown.append(node)


def _is_network(func: ast.expr, file: SourceFile) -> bool:
    """A module, or an attribute of a module that `__init__` sets to an instance of a class."""
    if file.values.is_a(func, "module"):
        return True
    if not isinstance(func, ast.Attribute) or not is_self(func):
        return False
    cls = file.index.class_of(func)
    made = (
        file.bindings.attribute(cls, func.attr) if cls is not None and file.context.is_module(cls) else None
    )
    return isinstance(made, ast.Call) and called_name(made)[:1].isupper()


def _is_score(call: ast.Call, file: SourceFile) -> bool:
    """`scores.append(row.sum().item())`: a number that is only kept is the size of nothing."""
    return called_name(call) == "item" and file.uses.of(call) <= {REPORTED, RETURNED, STORED}


def _subscript(node: ast.Subscript, found: Slices) -> None:
    entries = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(node.ctx, ast.Store):
        entries += [holder.slice for holder in _holders(node)]  # `out[i][j] = ...`
    if not any(found.indexed(e) for e in entries):
        # `row[mask]`, `x[i][keep]`: as many elements as the mask has. `bins[number]` is an entry of a list.
        row = found.touches(node.value)
        tensor = row or len(entries) > 1 or found.file.values.of(node.value).kind == "tensor"
        if any(
            row and _data_bound(e, found) if isinstance(e, ast.Slice) else tensor and found.touches(e)
            for e in entries
        ):
            found.ragged = found.cut = True
            found.cut_of = found.cut_of or (base_of(node.value) if row else None)
        return
    if any(isinstance(e, ast.Slice) and _data_bound(e, found) for e in entries):
        found.ragged = found.cut = True  # `x[i, : lengths[i]]`
        found.cut_of = found.cut_of or node.value
    if any(isinstance(e, ast.Slice) and _is_block(e, found) for e in entries):
        found.apart = True  # `x[i * n : (i + 1) * n]`
    parent = found.file.index.parent(node)
    if isinstance(parent, ast.Call) and called_name(parent) == "len":
        found.apart = True  # each entry has a length of its own
        return
    base = node.value
    kind = found.file.values.of(base).kind
    if isinstance(node.ctx, ast.Store):
        found.stores += 1
        statement = found.file.index.parent(node)
        if kind == "tensor" and isinstance(statement, ast.Assign) and found.touches(statement.value):
            found.ops.append(node)
        return
    if _counts_entries(found) or found.file.values.is_sequence(base) or _is_nested(node, found):
        found.looked_up += 1
        return
    shaped = isinstance(node.slice, ast.Tuple) or has_shape(base, found.file)
    shaped = shaped or isinstance(found.file.index.parent(node), ast.Attribute)
    if (
        kind == "tensor"
        or (shaped and not kind and _goes_into_torch(node, found.file))
        or _measures(found, base)
    ):
        found.sources.append(base)
        if found.first is None:
            found.first = node
    elif kind != "array":
        found.looked_up += 1
        if isinstance(parent, ast.Call) and any(a is not node and found.touches(a) for a in parent.args):
            found.apart = True  # `distance(x[i], self.tables[i])`: tables of any sizes


def _data_bound(part: ast.Slice, found: Slices) -> bool:
    bounds = [b for b in (part.lower, part.upper) if b is not None]
    return any(
        found.touches(b)
        or names_in(b) & found.others
        or any(isinstance(n, ast.Call) and called_name(n) == "item" for n in [b, *own_nodes(b)])
        for b in bounds
    )


def _is_block(part: ast.Slice, found: Slices) -> bool:
    """Is it a block of rows, which is as large as the memory lets it be?"""
    return (
        part.lower is not None
        and part.upper is not None
        and all(map(found.indexed, (part.lower, part.upper)))
    )


def _goes_into_torch(node: ast.expr, file: SourceFile) -> bool:
    """Is it an argument of a torch function or of a network, or asked for what only a tensor can do?"""
    parent = file.index.parent(node)
    if isinstance(parent, ast.Attribute) and parent.attr in TENSOR_ONLY_METHODS:
        return isinstance(file.index.parent(parent), ast.Call)
    if isinstance(parent, ast.keyword):
        parent = file.index.parent(parent)
    if not isinstance(parent, ast.Call) or node is parent.func:
        return False
    return file.imports.qualified(parent.func).startswith("torch.") or _is_network(parent.func, file)


def has_shape(base: ast.expr, file: SourceFile) -> bool:
    """Does the function ask it for its shape, so that it is a tensor or an array?"""
    return ast.unparse(base) in file.once(_shaped).get(file.index.function_of(base), ())


def _shaped(file: SourceFile) -> dict[FunctionNode | None, set[str]]:
    table: dict[FunctionNode | None, set[str]] = {}
    for node in file.index.attributes_named("shape", "ndim"):
        table.setdefault(file.index.function_of(node), set()).add(ast.unparse(node.value))
    return table


def _measures(found: Slices, base: ast.expr) -> bool:
    """Is the loop as long as `base.size(...)` says, or, in the forward of a network, `base.shape[...]`?"""
    limit = found.limit
    if isinstance(limit, ast.Subscript) and found.file.context.forward_of(found.place) is not None:
        shape = limit.value
        return (
            isinstance(shape, ast.Attribute)
            and shape.attr == "shape"
            and found.file.values.of(base).kind != "array"
            and ast.dump(shape.value) == ast.dump(base)
        )
    return (
        isinstance(limit, ast.Call)
        and isinstance(limit.func, ast.Attribute)
        and limit.func.attr == "size"
        and ast.dump(limit.func.value) == ast.dump(base)
    )


def _is_nested(node: ast.Subscript, found: Slices) -> bool:
    """`x[i]` of `x[i][j]`: a list of lists, which as a tensor would be `x[i, j]`."""
    outer = found.file.index.parent(node)
    return (
        isinstance(outer, ast.Subscript)
        and outer.value is node
        and found.file.values.of(outer.slice).kind == "scalar"
        and not isinstance(outer.slice, ast.Constant)
        and not has_shape(node.value, found.file)
    )


def _counts_entries(found: Slices) -> bool:
    """Is the loop as long as `len(…)` says of a list? What it indexes is one too, where nothing shows a tensor."""
    limit: ast.expr | None = found.limit
    if isinstance(limit, ast.Name):
        limit = assigned(limit, found.file)
    return (
        isinstance(limit, ast.Call)
        and called_name(limit) == "len"
        and len(limit.args) == 1
        and not found.file.values.is_tensor(limit.args[0])
    )


def _only_measured(node: ast.Subscript, file: SourceFile) -> bool:
    """`len(x[i])`, `x[i].shape`: the size, not what is stored there."""
    parent = file.index.parent(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("shape", "size", "dtype", "device")
    return isinstance(parent, ast.Call) and called_name(parent) == "len"


def _holders(node: ast.Subscript) -> list[ast.Subscript]:
    """`x[i]` of `x[i][j]`."""
    holders = []
    held = node.value
    while isinstance(held, ast.Subscript):
        holders.append(held)
        held = held.value
    return holders


def base_of(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
