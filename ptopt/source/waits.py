"""Where a piece of code waits for the device: reads of tensor values, copies to the host, shapes that depend on data."""

from __future__ import annotations

import ast
from functools import cached_property

from ptopt.source.calls import CallGraph
from ptopt.source.context import Context
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index, Loop
from ptopt.source.values import Value, Values

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_DATA_SHAPED = frozenset({"nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "bincount"})
_CASTS = frozenset({"float", "int", "bool", "print", "str"})
_DEEPEST = 2  # calls into functions of the file that are followed


class Waits:
    """The waits of one file, by function."""

    def __init__(
        self, index: Index, imports: Imports, calls: CallGraph, values: Values, context: Context
    ) -> None:
        self._index = index
        self._imports = imports
        self._calls = calls
        self._values = values
        self._context = context

    def is_wait(self, node: ast.AST) -> bool:
        """Does the expression make Python wait for the device, as far as the file tells?"""
        if isinstance(node, ast.Call):
            return self._call_waits(node)
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            return self._on_device(node.test) and isinstance(node.test, (ast.Compare, ast.Call, ast.UnaryOp))
        return False

    def in_iteration(self, scope: Loop | FunctionNode) -> tuple[ast.AST, ...]:
        """Every wait in one iteration of a loop, or one call of a function, in source order; rare ones left out.

        Waits in functions of the file that it calls count, as the call.
        """
        return tuple(
            node
            for node in self._candidates.get(self._function_of(scope), ())
            if self._index.within(node, scope)
            and self._waits(node, _DEEPEST)
            and self._context.rare_guard(node, scope) is None
        )

    def others(self, node: ast.AST, scope: Loop | FunctionNode) -> tuple[ast.AST, ...]:
        """The waits of the iteration that are no part of the statement of `node`."""
        own = self._index.statement_of(node)
        compound = hasattr(own, "body")  # of an `if` or `while`, only the test is the wait
        return tuple(
            wait
            for wait in self.in_iteration(scope)
            if (wait is not own if compound else self._index.statement_of(wait) is not own)
            and not self._index.within(wait, node)
        )

    def _function_of(self, scope: Loop | FunctionNode) -> FunctionNode | None:
        return (
            scope
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef))
            else self._index.function_of(scope)
        )

    @cached_property
    def _candidates(self) -> dict[FunctionNode | None, list[ast.AST]]:
        """Function -> what may wait in it: calls by a telling name, conditions, calls of functions of the file."""
        table: dict[FunctionNode | None, list[ast.AST]] = {}
        for call in self._index.of_type(ast.Call):
            name = _name(call)
            if name in _READS or name in _DATA_SHAPED or name in _CASTS or name in ("synchronize", "to"):
                table.setdefault(self._index.function_of(call), []).append(call)
            elif self._calls.resolve(call) is not None:
                table.setdefault(self._index.function_of(call), []).append(call)
        for node in self._index.of_type(ast.If, ast.While, ast.Assert):
            table.setdefault(self._index.function_of(node), []).append(node)
        for found in table.values():
            found.sort(key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]
        return table

    def _waits(self, node: ast.AST, depth: int) -> bool:
        if self.is_wait(node):
            return True
        target = self._calls.resolve(node) if isinstance(node, ast.Call) and depth else None
        return target is not None and self._function_waits(target, depth - 1)

    def _function_waits(self, function: FunctionNode, depth: int) -> bool:
        key = (function, depth)
        known = self._known.get(key)
        if known is None:
            self._known[key] = False  # recursion ends here
            known = self._known[key] = any(
                self._waits(node, depth) and self._context.rare_guard(node, function) is None
                for node in self._candidates.get(function, ())
            )
        return known

    @cached_property
    def _known(self) -> dict[tuple[FunctionNode, int], bool]:
        return {}

    def _call_waits(self, call: ast.Call) -> bool:
        name, func = _name(call), call.func
        if name == "synchronize":
            return "torch" in (self._imports.qualified(func) or "torch")
        if isinstance(func, ast.Name):
            return name in _CASTS and any(self._on_device(arg) for arg in call.args)
        if not isinstance(func, ast.Attribute):
            return False
        if self._imports.qualified(func).startswith("torch."):
            return name in _DATA_SHAPED and any(self._on_device(arg) for arg in call.args)
        if name in _READS:
            value = self._values.of(_chain_start(func.value))
            return value.device != "cpu" and (
                value.kind == "tensor" or (name in ("item", "cpu") and not value.kind)
            )
        if name in _DATA_SHAPED:
            return self._on_device(func.value)
        if name == "to" and self._on_device(func.value):
            first = call.args[0] if call.args else None
            return isinstance(first, ast.Constant) and first.value == "cpu"
        return False

    def _on_device(self, expr: ast.expr) -> bool:
        value: Value = self._values.of(expr)
        return value.kind == "tensor" and value.device != "cpu"


def _chain_start(expr: ast.expr) -> ast.expr:
    """`loss` of `loss.detach().cpu()`: the value that the copy starts from."""
    while (
        isinstance(expr, ast.Call)
        and isinstance(expr.func, ast.Attribute)
        and expr.func.attr in ("detach", "cpu", "float", "clone")
    ):
        expr = expr.func.value
    return expr


def _name(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
