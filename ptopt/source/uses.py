"""Where a value goes: reported, compared, returned, reduced, stored, passed on, ignored."""

from __future__ import annotations

import ast
import builtins
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Set
from functools import cached_property
from itertools import islice
from operator import attrgetter

from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode, Index

REPORTED = "reported"  # logged, printed, kept for a report
COMPARED = "compared"  # decides which way Python goes, or indexes a Python object
RETURNED = "returned"
REDUCED = "reduced"  # only its sum, mean, maximum, ... is used
STORED = "stored"  # in an attribute, a container, a file
HOST = "host"  # to a function that takes host memory alone
PASSED = "passed"  # to a function that is not known
COMPUTED = "computed"  # an operand of further work
IGNORED = "ignored"  # nobody reads it

_REPORTING = re.compile(
    r"^(print|info|debug|warning|record\w*|log\w*|add_scalars?|add_histogram|set_postfix\w*|set_description\w*|write|meter|"
    r"format|report|track|update_meter|tqdm)$"
)
_KEEPING = frozenset({"append", "extend", "add", "update", "insert", "put", "setdefault"})
_REDUCING = frozenset(
    "sum mean max min argmax argmin any all norm amax amin std var count_nonzero prod median numel".split()
)
_PLAIN = frozenset("float int round abs str detach cpu item numpy tolist clone squeeze to".split())
_ON_HOST = frozenset({"pack_padded_sequence", "linear_sum_assignment", "imshow", "imwrite", "imsave"})
_METRIC = re.compile(
    r"loss|acc(?!um_?step)|metric|correct|score|reward|grad_?norm|perplexity|ppl|error|iou|psnr|avg|mean|total|running|stat|"
    r"log|history|meter|summary|epoch_|result",
    re.I,
)
_BUILTINS = frozenset(dir(builtins)) | {
    "__file__",
    "__name__",
    "__doc__",
    "__path__",
    "__spec__",
    "__class__",
    "__qualname__",
}
_by_line = attrgetter("lineno")
_by_place = attrgetter("lineno", "col_offset")
_MOST_USES = 8  # of a name after its binding that are looked at
_MOST_NAMES = 4  # local names that are followed one after the other


class Uses:
    """Where the values of one file go."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._loads: dict[str, dict[FunctionNode | None, list[ast.Name]]] = {}
        self._lines: dict[str, tuple[list[int], list[int]]] = {}
        self._named: dict[str, list[ast.Name]] = {}
        self._given: dict[tuple[ast.AST, int], set[str]] = {}  # by assignment, and names still to follow

    def of(self, expr: ast.AST) -> frozenset[str]:
        """All the ways in which the value of `expr` is used in its function, through local names and plain casts."""
        return frozenset(way.partition(":")[0] for way in self._ways(expr, _MOST_NAMES))

    def reductions(self, expr: ast.AST) -> frozenset[str]:
        """What reduces the value of `expr`, such as "sum" or "min", where nothing else is done with it; else nothing."""
        ways = self._ways(expr, _MOST_NAMES)
        if any(not way.startswith(REDUCED) for way in ways):
            return frozenset()
        return frozenset(way.partition(":")[2] for way in ways)

    def loads(self, function: FunctionNode | None, name: str) -> list[ast.Name]:
        """Every read of a name in the function itself, in source order."""
        known = self._loads.get(name)
        if known is None:
            known = self._loads[name] = {}
            read = sorted(self._read.get(name, ()), key=_by_place)
            for owner, node in self._index.functions_of(read):
                known.setdefault(owner, []).append(node)
        return known.get(function, [])

    def loads_in(self, container: ast.AST, name: str) -> Iterator[ast.Name]:
        """Those of the reads of a name in the function around `container` that stand in `container`."""
        return self._within(self.loads(self._index.function_of(container), name), container)

    def named_in(self, container: ast.AST, name: str) -> Iterator[ast.Name]:
        """Every place in `container` where the name stands, in functions nested in it also."""
        return self._within(self.named(name), container)

    def _within(self, found: list[ast.Name], container: ast.AST) -> Iterator[ast.Name]:
        start = bisect_left(found, container.lineno, key=_by_line)  # type: ignore[attr-defined]
        for name in islice(found, start, None):
            if name.lineno > container.end_lineno:  # type: ignore[attr-defined]
                return
            if self._index.within(name, container):
                yield name

    def named(self, name: str) -> list[ast.Name]:
        """Every place of the file where the name stands, in source order."""
        found = self._named.get(name)
        if found is None:
            found = self._read.get(name, []) + self._stored.get(name, [])
            found.sort(key=_by_place)
            self._named[name] = found
        return found

    def reads(self, name: str) -> list[ast.Name]:
        """Every place of the file where the name is read, in the order of what the names are parts of."""
        return self._read.get(name, [])

    def stored(self, name: str) -> list[ast.Name]:
        """Every place of the file where the name gets a value or is deleted."""
        return self._stored.get(name, [])

    def lines(self, name: str) -> tuple[list[int], list[int]]:
        """The lines of the file that read the name, in order, and those that give it a value. `x += 1` does both."""
        known = self._lines.get(name)
        if known is None:
            read = [node.lineno for node in self._read.get(name, ())] + self._changed.get(name, [])
            stored = [node.lineno for node in self._stored.get(name, ())]
            known = self._lines[name] = (sorted(read), sorted(stored))
        return known

    @cached_property
    def _changed(self) -> dict[str, list[int]]:
        """Name -> the lines of `name += value`."""
        table: dict[str, list[int]] = {}
        for statement in self._index.of_type(ast.AugAssign):
            if isinstance(statement.target, ast.Name):
                table.setdefault(statement.target.id, []).append(statement.lineno)
        return table

    @property
    def names(self) -> Set[str]:
        """All names that stand in the file."""
        return self._read.keys() | self._stored.keys()

    @cached_property
    def bound(self) -> frozenset[str]:
        """The names that something in the file binds, in whatever scope, and those that Python brings. `match` patterns are not read."""
        of_type = self._index.of_type
        imported = (alias for node in of_type(ast.Import, ast.ImportFrom) for alias in node.names)
        return _BUILTINS.union(
            self._stored,
            (alias.asname or alias.name.partition(".")[0] for alias in imported),
            (node.name for node in of_type(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)),
            (argument.arg for argument in of_type(ast.arg)),
            (handler.name for handler in of_type(ast.ExceptHandler) if handler.name),
            (name for node in of_type(ast.Global) for name in node.names),
        )

    @cached_property
    def _read(self) -> dict[str, list[ast.Name]]:
        table: defaultdict[str, list[ast.Name]] = defaultdict(list)
        load = ast.Load
        for node in self._index.of_type(ast.Name):
            if node.ctx.__class__ is load:
                table[node.id].append(node)
        return table

    @cached_property
    def _stored(self) -> dict[str, list[ast.Name]]:
        table: defaultdict[str, list[ast.Name]] = defaultdict(list)
        for node in self._index.stored_names:
            table[node.id].append(node)
        return table

    def _ways(self, expr: ast.AST, names: int) -> set[str]:
        for parent, child in self._index.ancestors(expr):
            if isinstance(parent, ast.Attribute):
                continue  # the method or attribute of the value: its call says more
            if isinstance(parent, ast.Call):
                if child is parent.func:
                    name = child.attr if isinstance(child, ast.Attribute) else ""
                    if name in _REDUCING:
                        return {f"{REDUCED}:{name}"}
                    if name in _PLAIN:
                        continue
                    return {STORED} if name in _KEEPING else {COMPUTED}
                return self._passed(parent, names)
            if isinstance(parent, ast.keyword):
                continue
            if isinstance(parent, (ast.Compare, ast.BoolOp, ast.If, ast.While, ast.Assert)):
                return {COMPARED}
            if isinstance(parent, ast.IfExp) and child is parent.test:
                return {COMPARED}
            if isinstance(parent, ast.Subscript) and child is not parent.value:
                return {COMPARED}
            if isinstance(parent, ast.Dict) and child in parent.keys:
                return {COMPARED}
            if isinstance(parent, ast.DictComp) and child is parent.key:
                return {COMPARED}
            if isinstance(parent, (ast.JoinedStr, ast.FormattedValue)):
                return {REPORTED}
            if isinstance(parent, (ast.Return, ast.Yield)):
                return {RETURNED}
            if isinstance(parent, (ast.BinOp, ast.UnaryOp)):
                continue
            if isinstance(parent, ast.AugAssign):
                return {REPORTED} if _METRIC.search(ast.unparse(parent.target)) else {COMPUTED}
            if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                known = self._given.get((parent, names))
                if known is None:  # once each: of 8 reads a name, 4 names make 4,096 paths
                    known = self._given[parent, names] = self._assigned(parent, names)
                return known
            if isinstance(parent, ast.Expr):
                return {IGNORED}
            if isinstance(parent, ast.comprehension) and child in parent.ifs:
                return {COMPARED}
            if isinstance(parent, (ast.For, ast.comprehension)):
                return {COMPUTED}
            if isinstance(parent, ast.stmt):
                return {COMPUTED}
        return {COMPUTED}

    def _passed(self, call: ast.Call, names: int) -> set[str]:
        func = call.func
        name = last_name(func)
        if _REPORTING.search(name):
            return {REPORTED}
        if name in _KEEPING:
            target = ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""
            return {REPORTED} if _METRIC.search(target) else {STORED}
        if name in _REDUCING:
            return {f"{REDUCED}:{name}"}
        if name in _PLAIN and isinstance(func, ast.Name):
            return self._ways(call, names)
        return {HOST} if name in _ON_HOST else {PASSED}

    def _begins_anew(self, target: ast.Name, node: ast.AST) -> bool:
        """Is what the right-hand side reads under this name never what the assignment gave it: no loop carries that back?"""
        loop = next(self._index.loops_of(node), None)
        return loop is None or any(
            isinstance(name.ctx, ast.Store) and name.lineno < target.lineno
            for name in self.named_in(loop, target.id)
        )

    def _assigned(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, names: int) -> set[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        ways: set[str] = set()
        for target in targets:
            if not isinstance(target, ast.Name):
                reported = isinstance(target, ast.Subscript) and _METRIC.search(ast.unparse(target))
                ways.add(REPORTED if reported else STORED)
                continue
            loads = self.loads(self._index.function_of(node), target.id)
            first = bisect_left(loads, node.lineno, key=_by_line)
            uses = loads[first : first + _MOST_USES]
            if uses and uses[0].lineno <= _last_line(node) and self._begins_anew(target, node):
                uses = [
                    use for use in uses if not self._index.within(use, node)
                ]  # those read the value before
            if not uses:
                ways.add(IGNORED)
            elif names == 0:
                ways.add(COMPUTED)
            for use in uses:
                ways |= self._ways(use, names - 1) if names else set()
        return ways


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno
