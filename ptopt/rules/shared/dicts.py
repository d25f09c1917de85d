"""Values that are dictionaries, of which no method of a tensor can be called."""

from __future__ import annotations

import ast
import re

from ptopt.rules.shared.flow import assigned
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FunctionNode, own_nodes

_NAMED = re.compile(r"(^|_)(dict|dicts)\d*$|_dict_", re.I)
_OF_DICTS = frozenset({"items", "keys", "values"})
_MAKERS = frozenset({"dict", "defaultdict", "OrderedDict", "Counter"})
_DEEPEST = 3  # functions and names that are followed


def is_dict(expr: ast.expr, file: SourceFile, depth: int = _DEEPEST) -> bool:
    """Is it a dictionary: made as one, called one, or used as one in its function, or what a function gives that returns one?"""
    if isinstance(expr, (ast.Dict, ast.DictComp)):
        return True
    if isinstance(expr, ast.Call):
        if isinstance(expr.func, ast.Name) and expr.func.id in _MAKERS:
            return True
        found = file.definition_of(expr) if depth else None
        return found is not None and _gives_dict(found[1], found[0], depth - 1)
    if not isinstance(expr, (ast.Name, ast.Attribute)):
        return False
    if _NAMED.search(last_name(expr)):
        return True
    if (file.index.function_of(expr), ast.unparse(expr)) in file.once(_used_as_dicts):
        return True
    value = assigned(expr, file) if depth else None
    return value is not None and is_dict(value, file, depth - 1)


def _gives_dict(function: FunctionNode, file: SourceFile, depth: int) -> bool:
    """Does each `return` of the function that gives something give a dictionary?"""
    given = [
        node.value
        for node in own_nodes(function)
        if isinstance(node, ast.Return)
        and file.index.function_of(node) is function
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    ]
    return bool(given) and depth > 0 and all(is_dict(value, file, depth) for value in given)


def _used_as_dicts(file: SourceFile) -> frozenset[tuple[FunctionNode | None, str]]:
    """(function, source) of what a function asks for keys or values, or looks up by a text."""
    asked = (
        node.func.value
        for name in sorted(_OF_DICTS)
        for node in file.calls_named(name)
        if isinstance(node.func, ast.Attribute) and not node.args
    )
    looked_up = (
        node.value
        for node in file.index.of_type(ast.Subscript)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    )
    return frozenset(
        (file.index.function_of(expr), ast.unparse(expr))
        for expr in (*asked, *looked_up)
        if isinstance(expr, (ast.Name, ast.Attribute))
    )
