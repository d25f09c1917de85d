"""Where the names of a function are read: tables that are made once for a function."""

from __future__ import annotations

import ast

from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk


def uses_of_value(statement: ast.stmt, name: str, file: SourceFile) -> list[ast.Name]:
    """Where the code of the function itself reads the value that the statement gave the name; of the module, outside of functions."""
    return _uses_by_statement(file.index.function_of(statement), name, file).get(statement, [])


@remembered
def _uses_by_statement(
    function: FunctionNode | None, name: str, file: SourceFile
) -> dict[ast.AST, list[ast.Name]]:
    table: dict[ast.AST, list[ast.Name]] = {}
    for use in file.uses.loads(function, name):
        scope = file.index.enclosing(use, (*FUNCTIONS, ast.Lambda, ast.ClassDef))
        binding = file.bindings.last_before(use) if scope is function else None
        if binding is not None:
            table.setdefault(binding.node, []).append(use)
    return table


@remembered
def names_read_in(root: ast.AST) -> frozenset[str]:
    """Names that the code of `root` itself reads."""
    return frozenset(n.id for n in own_nodes(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


@remembered
def names_in_returned_tuples(root: ast.AST) -> frozenset[str]:
    """Names in the tuples that the code of `root` itself returns."""
    returned = [
        n.value for n in own_nodes(root) if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple)
    ]
    return frozenset(n.id for value in returned for n in walk(value) if isinstance(n, ast.Name))
