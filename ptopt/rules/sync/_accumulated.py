"""`total += loss.item()` as a sum on the device, and the places that read the sum as numbers."""

from __future__ import annotations

import ast

from ptopt.rules.base import Edit, Fix, Safety, SourceFile
from ptopt.rules.code import method_call
from ptopt.source.bindings import is_self
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS

_MOST_READS = 8
_MOST_PLACES = 100  # of the name in the file
_CASTS = frozenset({"float", "int"})
_OF_BOOL = frozenset({"sum", "any", "all", "count_nonzero", "mean"})


def summed_on_device(node: ast.AST, tensor: ast.expr, file: SourceFile) -> Fix | None:
    """`total += loss.item()` becomes `total += loss.detach()`, and each read of `total` that is seen `float(total)`.

    None where a read would wait as often as before, or cannot be told from others.
    """
    parent = file.index.parent(node)
    if not (isinstance(parent, ast.AugAssign) and isinstance(parent.op, ast.Add) and parent.value is node):
        return None
    if not isinstance(node, ast.Call) or method_call(node, "item") is None:
        return None
    target = file.source(parent.target)
    own = Edit(file.bounds(tensor)[1], file.bounds(node)[1], "" if _counts(tensor) else ".detach()")
    if isinstance(parent.target, ast.Subscript) and file.values.is_tensor(parent.target.value):
        holder = file.source(parent.target.value)
        if file.values.of(parent.target.value).device == "cpu":
            return None  # to which nothing is added that lies on a device
        return Fix(Safety.UNSAFE, (own,), f"`{holder}` lies on the same device")
    reads = _reads(parent, file)
    if reads is None or len(reads) > _MOST_READS:
        return None
    if any(_is_as_frequent(read, parent, file) for read in reads):
        return None
    cast = "int" if _counts(tensor) and _is_whole(parent, file) else "float"
    edits = [own]
    for read in reads:
        if not _takes_tensors(read, file):
            start, end = file.bounds(read)
            edits += [Edit(start, start, f"{cast}("), Edit(end, end, ")")]
    where = (
        f", and is read with `{cast}()` where this code reads it"
        if len(edits) > 1
        else ": read it with `.item()` where it is reported"
        if not reads
        else ""
    )
    return Fix(Safety.UNSAFE, tuple(edits), f"`{target}` becomes a tensor{where}")


def _counts(tensor: ast.expr) -> bool:
    """`(a == b).sum()`: a comparison has no graph that would have to be dropped."""
    of = method_call(tensor, *_OF_BOOL)
    return isinstance(of, ast.Compare)


def _is_whole(sums: ast.AugAssign, file: SourceFile) -> bool:
    """Are only counts added to the name, which starts as a whole number?"""
    if not isinstance(sums.target, ast.Name):
        return False
    for binding in file.bindings.of(file.index.function_of(sums), sums.target.id):
        if binding.kind == "augment":
            read = method_call(binding.value, "item") if binding.value is not None else None
            if read is None or not _counts(read):
                return False
        elif not (isinstance(binding.value, ast.Constant) and isinstance(binding.value.value, int)):
            return False
    return True


def _reads(sums: ast.AugAssign, file: SourceFile) -> list[ast.expr] | None:
    """Where the sum is read in its function, or in its class; None where that cannot be told."""
    target, function = sums.target, file.index.function_of(sums)
    if isinstance(target, ast.Name):
        named = file.uses.named(target.id)
        if len(named) > _MOST_PLACES:
            return None
        loads = [name for name in named if isinstance(name.ctx, ast.Load)]
        shared = any(target.id in node.names for node in file.index.of_type(ast.Global, ast.Nonlocal))
        nested = any(
            file.index.function_of(name) is not function
            and (function is None or file.index.within(name, function))
            and not file.bindings.of(file.index.function_of(name), target.id)
            for name in loads
        )
        return None if shared or nested else list(file.reads_of(function, target.id))
    if isinstance(target, ast.Attribute):
        found = [a for a in file.index.attributes_named(target.attr) if isinstance(a.ctx, ast.Load)]
        if len(found) > _MOST_PLACES:
            return None
        cls = file.index.class_of(sums)
        own = is_self(target) and cls is not None
        if not own or any(not is_self(a) or file.index.class_of(a) is not cls for a in found):
            return [] if not found else None
        return list(found)
    holder = target.value if isinstance(target, ast.Subscript) else target
    root = holder
    while isinstance(root, (ast.Subscript, ast.Attribute)) and not is_self(root):
        root = root.value
    text = file.source(root)
    if isinstance(root, ast.Name):
        others: list[ast.expr] = list(file.uses.loads(function, root.id))
    elif isinstance(root, ast.Attribute):
        others = [a for a in file.index.attributes_named(root.attr) if file.source(a) == text]
    else:
        return None
    if len(others) > _MOST_PLACES:
        return None
    return None if any(_is_read(other, file) for other in others) else []


def _is_read(node: ast.expr, file: SourceFile) -> bool:
    """Is it more than the table in `table[key] = value` and `table[key] += value`?"""
    parent: ast.AST | None = file.index.parent(node)
    while isinstance(parent, (ast.Subscript, ast.Attribute)):
        if not isinstance(parent.ctx, ast.Load):
            return False
        parent = file.index.parent(parent)
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _is_as_frequent(read: ast.expr, sums: ast.AugAssign, file: SourceFile) -> bool:
    """Does the read stand in the iteration that adds to the sum, or in code that runs as often, behind no rare condition?"""
    loop = next(file.index.loops_of(sums), None)
    if loop is not None and file.index.function_of(read) is file.index.function_of(sums):
        return file.index.within(read, loop) and file.guards.rare(read, loop) is None
    scope = next((a for a, _ in file.index.ancestors(read) if isinstance(a, FUNCTIONS)), None)
    return file.frequencies.of(read).often > Often.EPOCH and file.guards.rare(read, scope) is None


def _takes_tensors(read: ast.expr, file: SourceFile) -> bool:
    """Is it cast already, or formatted, which a tensor of one number does itself?"""
    parent = file.index.parent(read)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in _CASTS:
        return True
    for ancestor, _ in file.index.ancestors(read):
        if isinstance(ancestor, ast.JoinedStr):
            return True
        if isinstance(ancestor, ast.stmt):
            break
    return False
