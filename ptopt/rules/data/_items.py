"""Code that runs again for each item of a dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Evidence, Problem, Rule, SourceFile
from ptopt.rules.code import is_call_of
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FunctionNode, walk

_CACHES = ("cache", "lru_cache", "cached_property", "cachedmethod", "cached", "memoize")
_JOINS = frozenset({"os.path.join", "pathlib.Path"})


class ItemRule(Rule):
    """Base of rules about what a dataset or a collate function does again for each item.

    `check_item` sees the nodes of the given types that run for each item, and the function that runs them; what is kept
    after the first time is left out.
    """

    family = "data"
    nodes: ClassVar[tuple[type[ast.AST], ...]] = (ast.Call,)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        function = self._candidate(node, file) and item_function(node, file)
        if function and not _is_kept(node, function, file):
            yield from self.check_item(node, function, file)

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        """Is the node worth a look? Cheap."""
        return True

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        """Problems of one node that runs for each item."""
        raise NotImplementedError(f"{type(self).__name__} has no check_item")


def item_function(node: ast.AST, file: SourceFile) -> FunctionNode | None:
    """The function around the node, if it runs for each item in a loader's worker."""
    function = file.index.function_of(node)
    if function is None:
        return None
    frequency = file.frequencies.of(node)
    return function if frequency.in_worker and frequency.often is Often.ELEMENT else None


def item_evidence(node: ast.AST, file: SourceFile) -> tuple[Evidence, ...]:
    """The line that shows that the node runs for each item."""
    frequency = file.frequencies.of(node)
    return (Evidence(frequency.line, f"runs {frequency.reason}"),) if frequency.line else ()


def _is_kept(node: ast.AST, function: FunctionNode, file: SourceFile) -> bool:
    """Is the result stored in an attribute or a table of `self`, or by a decorator, so that it is made once?"""
    callers = [file.index.function_of(call) for call in file.calls.callers(function)]
    if any(caller is not None and _is_cached(caller, file) for caller in [function, *callers]):
        return True
    if file.context.is_item_code(node) is None and _filled_once(function, file):
        return True
    statement = file.index.statement_of(node)
    if not isinstance(statement, ast.Assign):
        return False
    stored = [t.value if isinstance(t, ast.Subscript) else t for t in statement.targets]
    return any(isinstance(t, ast.Attribute) for t in stored)


def opened(argument: ast.expr, file: SourceFile) -> ast.expr:
    """The path behind `open(path)`, also when a `with` gave the open file a name."""
    opened = argument
    if isinstance(argument, ast.Name):
        withs = [a for a, _ in file.index.ancestors(argument) if isinstance(a, ast.With)]
        for item in (item for statement in withs for item in statement.items):
            if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == argument.id:
                opened = item.context_expr
    return opened.args[0] if is_call_of(opened, "open") and opened.args else opened


def same_for_all(path: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """Is the path made of attributes of `self` and literals only, none of them set in the function itself?"""
    if isinstance(path, ast.Call) and file.imports.qualified(path.func) in _JOINS and not path.keywords:
        parts = [part for part in path.args if not isinstance(part, ast.Constant)]
        return bool(parts) and all(same_for_all(part, function, file) for part in parts)
    if any(isinstance(n, (ast.Call, ast.Subscript, ast.NamedExpr)) for n in walk(path)):
        return False
    names = [n.id for n in walk(path) if isinstance(n, ast.Name)]
    if not names or any(name != "self" for name in names):
        return False
    stored = _attributes_stored_in(function)
    return not any(isinstance(n, ast.Attribute) and n.attr in stored for n in walk(path))


@remembered
def _attributes_stored_in(function: FunctionNode) -> frozenset[str]:
    nodes = (n for n in walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return frozenset(n.attr for n in nodes)


def _filled_once(function: FunctionNode, file: SourceFile) -> bool:
    """Is a helper called only behind tests of attributes of `self`: `if self.index is None: self.load_index()`?"""
    guards = [file.index.enclosing(call, (ast.If,)) for call in file.calls.callers(function)]
    return bool(guards) and all(
        guard is not None and any(isinstance(n, ast.Attribute) for n in walk(guard.test)) for guard in guards
    )


def _is_cached(function: FunctionNode, file: SourceFile) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(file.source(decorator).rpartition(".")[2] in _CACHES for decorator in decorators)
