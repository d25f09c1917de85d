"""What an edit leaves behind: imports and local names that nothing reads any more, and names that nothing binds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Edit
from ptopt.rules.shared.removal import remove_statement
from ptopt.source.calls import called_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FunctionNode
from ptopt.source.torch_names import SCALAR_METHODS

_EFFECTS = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
_IMPURE = re.compile(
    r"rand|normal|bernoulli|multinomial|poisson|seed|_$|\.set_|distributed|cuda|save|load|compile"
)
_PURE = frozenset({"len", "int", "float", "min", "max", "range"}) | SCALAR_METHODS


def stale_names(before: SourceFile, after: SourceFile) -> list[tuple[str, str]]:
    """(function, "" for the module; name) of what is bound and no longer read, though it was read before.

    Magics and cells that are no Python were blanked, and may read the names that stand in them. An import of a notebook is
    for cells that are still to be written, too.
    """
    return sorted(
        (owner, name)
        for owner, name in after.once(_unread) - before.once(_unread)
        if name not in before.parsed.hidden and (owner or not before.is_notebook)
    )


def undefined_names(before: SourceFile, after: SourceFile) -> frozenset[str]:
    """Names that only the edit brings in, and that nothing in the file binds: `torch` where it is imported as `th`."""
    new = after.uses.names - before.uses.names
    return frozenset(new - after.uses.bound) if new else frozenset()


def removal(file: SourceFile, owner: str, name: str) -> Edit | None:
    """Edit that deletes the statement that binds the name; None unless it is the only one, and does nothing else."""
    found = [
        node for function, bound, node in _bound(file) if bound == name and _owner(function, file) == owner
    ]
    if len(found) != 1:
        return None
    (statement,) = found
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        plain = len(statement.names) == 1
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        plain = isinstance(statement.targets[0], ast.Name)
        plain = plain and not any(_has_effect(node, file) for node in ast.walk(statement))
    else:
        plain = False
    return remove_statement(file, statement) if plain else None


def _has_effect(node: ast.AST, file: SourceFile) -> bool:
    """May it do more than give a value? Random numbers move the generator on."""
    if not isinstance(node, ast.Call):
        return isinstance(node, _EFFECTS)
    name = file.imports.qualified(node.func) or called_name(node)
    if name.startswith(("torch.", "math.", "numpy.")):
        return bool(_IMPURE.search(name))
    return name not in _PURE


def _unread(file: SourceFile) -> set[tuple[str, str]]:
    read = file.once(_read)
    return {
        (_owner(function, file), name)
        for function, name, _ in _bound(file)
        if not name.startswith("_") and (function, name) not in read
    }


def _bound(file: SourceFile) -> Iterator[tuple[FunctionNode | None, str, ast.stmt]]:
    """Local names of functions, and all imports, with the statement that binds them."""
    index = file.index
    for statement in index.of_type(ast.Import, ast.ImportFrom):
        if not file.path.endswith("__init__.py"):  # there they are for others
            for alias in statement.names:
                yield index.function_of(statement), alias.asname or alias.name.partition(".")[0], statement
    for function, target in index.functions_of(index.stored_names):
        if function is not None and isinstance(target.ctx, ast.Store):
            yield function, target.id, index.statement_of(target)


def _read(file: SourceFile) -> set[tuple[FunctionNode | None, str]]:
    """(function, name) of all reads, each in the functions around it too; of names in `__all__` as well."""
    found: set[tuple[FunctionNode | None, str]] = set()
    for function, name in file.index.functions_of(file.index.of_type(ast.Name)):
        if isinstance(name.ctx, ast.Store) and not isinstance(file.index.parent(name), ast.AugAssign):
            continue
        while (function, name.id) not in found:
            found.add((function, name.id))
            if function is None:
                break
            function = file.index.function_of(function)
    for annotation in _annotations(file):
        found |= {(None, node.id) for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    for constant in file.index.of_type(ast.Constant):  # `__all__`, and types in quotes
        if isinstance(constant.value, str) and constant.value.isidentifier():
            found.add((None, constant.value))
    for statement in file.index.of_type(ast.Global, ast.Nonlocal):
        function = file.index.function_of(statement)
        found |= {(function, name) for name in statement.names}
    return found


def _annotations(file: SourceFile) -> Iterator[ast.AST]:
    """The annotations, which the index leaves out."""
    for function in file.calls.functions:
        arguments = function.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None and argument.annotation is not None:
                yield argument.annotation
        if function.returns is not None:
            yield function.returns
    for assigned in file.index.of_type(ast.AnnAssign):
        yield assigned.annotation


def _owner(function: FunctionNode | None, file: SourceFile) -> str:
    return "" if function is None else file.index.symbol_of(function.body[0])
