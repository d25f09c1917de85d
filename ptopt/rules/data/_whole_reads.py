"""Which reads of a dataset take one row of a file that they read whole."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

from ptopt.rules.base import SourceFile
from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes, walk

_Owner = tuple[FunctionNode | None, ast.ClassDef | None]


def depends_on_item(node: ast.AST, function: FunctionNode) -> bool:
    """Is it made of the index of the item, or of what the function made of that?"""
    names = _names_of_item(function)
    return any(isinstance(n, ast.Name) and n.id in names for n in walk(node))


def is_row_by_row(read: ast.expr, function: FunctionNode, file: SourceFile, *, archive: bool = False) -> bool:
    """Is one row of what `read` gives taken by the index of the item, each time that an item is asked for?

    `archive`: it may be one whose arrays are read by name, so that only a number or a slice takes a row.
    """
    return (
        not function.decorator_list
        and _is_dataset(function, file)
        and not _may_leave_before(read, function)
        and file.index.enclosing(read, (ast.IfExp, ast.BoolOp, ast.Lambda)) is None
        and any(_takes_row(use, function, archive) for use in _subscripts_of(read, function, file))
    )


def stays_the_same(path: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """Are all attributes that the path is made of set in `__init__` of the class, and nowhere else in the file?"""
    attributes = [n.attr for n in walk(path) if isinstance(n, ast.Attribute) and is_self(n)]
    here = file.index.class_of(function)
    for name in attributes:
        owners = _owners(file).get(name, frozenset())
        if not owners or not all(method is not None and method.name == "__init__" for method, _ in owners):
            return False
        if not any(cls is here for _, cls in owners):
            return False
    return bool(attributes)


def whole_of_table(opened: ast.Call, function: FunctionNode, file: SourceFile) -> Iterator[ast.Subscript]:
    """`f["rows"][:]` and `f["rows"][()]` of the file that `opened` gives: all rows of a table that all items share."""
    for use in _subscripts_of(opened, function, file):
        whole = _is_everything(use.slice) and isinstance(use.value, ast.Subscript)
        if whole and not depends_on_item(use.value, function):
            yield use


@remembered
def _names_of_item(function: FunctionNode) -> frozenset[str]:
    """The parameters besides `self`, and the names that are assigned from them."""
    arguments = function.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self"}
    for node in own_nodes(function):  # in source order
        if isinstance(node, ast.Assign) and any(
            isinstance(n, ast.Name) and n.id in names for n in walk(node.value)
        ):
            targets = (n for target in node.targets for n in walk(target))
            names |= {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(names)


def _is_dataset(function: FunctionNode, file: SourceFile) -> bool:
    cls = file.index.parent(function)
    return isinstance(cls, ast.ClassDef) and any(last_name(base).endswith("Dataset") for base in cls.bases)


def _may_leave_before(read: ast.expr, function: FunctionNode) -> bool:
    """Does a `return` stand above it: `if self.rows is not None: return self.rows[index]`?"""
    return _first_return(function) < read.lineno


@remembered
def _first_return(function: FunctionNode) -> int:
    return min((n.lineno for n in own_nodes(function) if isinstance(n, ast.Return)), default=sys.maxsize)


def _subscripts_of(read: ast.expr, function: FunctionNode, file: SourceFile) -> Iterator[ast.Subscript]:
    """`read[…]`, `read.iloc[…]`, `read["rows"][…]`; also by the one name that a `with` or an assignment gives to it."""
    pending: list[ast.AST] = [read, *_uses_of_name(read, function, file)]
    while pending:
        node = pending.pop()
        parent = file.index.parent(node)
        if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
            if isinstance(parent, ast.Subscript):
                yield parent
            pending += [parent, *_uses_of_name(parent, function, file)]


def _uses_of_name(value: ast.expr, function: FunctionNode, file: SourceFile) -> list[ast.Name]:
    parent = file.index.parent(value)
    if isinstance(parent, ast.withitem):
        target = parent.optional_vars
    elif isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    else:
        target = None
    if not isinstance(target, ast.Name):
        return []
    return file.uses.loads(function, target.id) if len(file.bindings.of(function, target.id)) == 1 else []


def _takes_row(use: ast.Subscript, function: FunctionNode, archive: bool) -> bool:
    if not depends_on_item(use.slice, function):
        return False
    return not archive or _is_position(use.slice, _parameters(function))


def _parameters(function: FunctionNode) -> frozenset[str]:
    return frozenset(argument.arg for argument in function.args.args[1:])


def _is_position(key: ast.expr, parameters: Collection[str]) -> bool:
    """A number or a slice: `index`, `index * 4`, `start:end`, `index, 0`; no name of an array."""
    if isinstance(key, ast.Slice):
        return True
    if isinstance(key, ast.Tuple):
        return bool(key.elts) and _is_position(key.elts[0], parameters)
    if isinstance(key, ast.BinOp):
        return isinstance(key.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)) and (
            _is_position(key.left, parameters) and _is_position(key.right, parameters)
        )
    if isinstance(key, ast.Constant):
        return isinstance(key.value, int)
    return isinstance(key, ast.Name) and key.id in parameters


def _is_everything(key: ast.expr) -> bool:
    if isinstance(key, ast.Slice):
        return key.lower is key.upper is key.step is None
    if isinstance(key, ast.Tuple):
        return not key.elts
    return isinstance(key, ast.Constant) and key.value is Ellipsis


@remembered
def _owners(file: SourceFile) -> dict[str, frozenset[_Owner]]:
    """Attribute -> what sets it, on whatever it is: functions (None for the module), with their classes."""
    found: dict[str, set[_Owner]] = {}
    for node in file.index.of_type(ast.Attribute):
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            found.setdefault(node.attr, set()).add((file.index.function_of(node), file.index.class_of(node)))
    return {name: frozenset(owners) for name, owners in found.items()}
