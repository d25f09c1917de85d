"""Where the names of a function are read: tables that are made once for a function."""

from __future__ import annotations

import ast

from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import own_nodes, walk


@remembered
def uses_by_binding(root: ast.AST, file: SourceFile) -> dict[tuple[ast.AST, str], list[ast.Name]]:
    """(what gave a name its value, the name) -> where that value is read, in the code of `root` itself."""
    uses: dict[tuple[ast.AST, str], list[ast.Name]] = {}
    for use in own_nodes(root):
        if isinstance(use, ast.Name) and isinstance(use.ctx, ast.Load):
            binding = file.bindings.last_before(use)
            if binding is not None:
                uses.setdefault((binding.node, use.id), []).append(use)
    return uses


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
