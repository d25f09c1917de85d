from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile, Span
from ptopt.rules.code import method_call
from ptopt.rules.ops._calls import names_in
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_CONVERTERS = frozenset(
    {"numpy.array", "numpy.asarray", "torch.tensor", "torch.as_tensor", "torch.LongTensor", "torch.IntTensor"}
)


class RunningSumLoop(Rule):
    """A table of offsets is summed up in a Python loop and then turned into an array.

    ## What it does
    Finds a loop whose body only appends a running total to a list and adds to it, when that list ends up in
    `np.array(...)` or `torch.tensor(...)`.

    ## Why it is slow
    Every entry costs a few interpreted instructions, a Python integer, and a conversion. `cumsum` does the same in one
    pass over the array, some fifty times faster; index tables have one entry per document or sample.

    ## Fix safety
    None: the list is built and converted in different places.

    ## Sources
    - [numpy.cumsum](https://numpy.org/doc/stable/reference/generated/numpy.cumsum.html)
    """

    id = "PTO418"
    name = "running-sum-loop"
    family = "ops"
    severity = Severity.LOW
    triggers = ("array(", "asarray(", "tensor(", "Tensor(")
    requires = (".append(",)
    nodes = (ast.For,)
    when_wrong = "the table has a few entries"

    VALID = (
        """
        offsets, at = [], 0
        for size in sizes:
            offsets.append(at)
            at += size
        for start in offsets:
            read(start)
        """,
        """
        total, seen = 0, []
        for x in loader:
            seen.append(total)
            total += model(x).sum()
        result = torch.tensor(seen)
        """,
        """
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        """,
    )
    INVALID = (
        Invalid(
            """
            pointers, address = [], 0
            for size in sizes:  # !
                pointers.append(address)
                address += size * item_size
            pointers = np.array(pointers, dtype=np.int64)
            """,
            instead="""
            pointers = np.zeros(len(sizes), dtype=np.int64)
            np.cumsum(sizes[:-1], out=pointers[1:])
            pointers *= item_size
            """,
        ),
        Invalid("""
            class Writer:
                def pointers(self, sizes):
                    address = 0
                    table = []
                    for size in sizes:  # !
                        table.append(address)
                        address += size * self.item_size
                    return table

                def write(self, sizes):
                    pointers = self.pointers(sizes)
                    pointers = np.array(pointers, dtype=np.int64)
        """),
        Invalid("""
            def ends(sizes):
                total, table = 0, []
                for size in sizes:  # !
                    total += size
                    table.append(total)
                return torch.tensor(table)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import numpy as np\nsizes = np.random.default_rng(0).integers(1, 100, 50000)",
        before=(
            "table, at = [], 0\n"
            "for size in sizes:\n    table.append(at)\n    at += size * 4\n"
            "result = np.array(table, dtype=np.int64)"
        ),
        after=(
            "result = np.zeros(len(sizes), dtype=np.int64)\n"
            "np.cumsum(sizes[:-1], out=result[1:])\nresult *= 4"
        ),
        scope="the loop and the conversion",
        sizes="50,000 entries",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or len(node.body) != 2 or not isinstance(node.target, ast.Name):
            return
        if not isinstance(node.iter, (ast.Name, ast.Attribute)):
            return
        append, addition = _append(node.body), _addition(node.body)
        if append is None or addition is None or append[1] != addition[0]:
            return
        table, added = append[0], addition[1]
        if node.target.id not in names_in(added) or any(
            isinstance(n, (ast.Call, ast.Subscript)) for n in walk(added)
        ):
            return
        use = _conversion(table, file.index.function_of(node), node.lineno, file)
        if use is None:
            return
        yield Problem(
            node,
            f"`{table.id}` is a running sum over `{file.source(node.iter)}` that is built entry by entry in Python and "
            f"turned into an array on line {use.lineno}. `cumsum` over the array of sizes gives it in one call.",
            0.65,
            (Evidence(use.lineno, "the conversion to an array"),),
            span=Span(node.lineno, node.lineno),
        )


def _append(body: list[ast.stmt]) -> tuple[ast.Name, str] | None:
    """(The list, the name appended to it) of `table.append(total)`, whichever of the two statements it is."""
    for stmt in body:
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        table = method_call(call, "append") if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and isinstance(table, ast.Name) and len(call.args) == 1:
            return (table, call.args[0].id) if isinstance(call.args[0], ast.Name) else None
    return None


def _addition(body: list[ast.stmt]) -> tuple[str, ast.expr] | None:
    """(The name, what is added to it) of `total += size`."""
    for stmt in body:
        if (
            isinstance(stmt, ast.AugAssign)
            and isinstance(stmt.op, ast.Add)
            and isinstance(stmt.target, ast.Name)
        ):
            return stmt.target.id, stmt.value
    return None


def _conversion(
    table: ast.Name, function: FunctionNode | None, after: int, file: SourceFile
) -> ast.Call | None:
    """The call that makes an array of the list: in the function itself, or where a caller gets it returned."""
    direct = _converted(table.id, function, after, file)
    if direct is not None or function is None:
        return direct
    last = function.body[-1]
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name) or last.value.id != table.id:
        return None
    for call in file.calls.callers(function):
        parent = file.index.parent(call)
        if isinstance(parent, ast.Call) and file.imports.qualified(parent.func) in _CONVERTERS:
            return parent
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            name, place = parent.targets[0].id, file.index.function_of(call)
            found = _converted(name, place, call.lineno, file)
            if found is not None:
                return found
    return None


def _converted(name: str, function: FunctionNode | None, after: int, file: SourceFile) -> ast.Call | None:
    calls = _conversions(function, file).get(name, [])
    at = bisect_right(calls, after, key=lambda c: c.lineno)
    return calls[at] if at < len(calls) else None


@remembered
def _conversions(function: FunctionNode | None, file: SourceFile) -> dict[str, list[ast.Call]]:
    """Name -> the calls that make an array of it, in source order."""
    table: dict[str, list[ast.Call]] = {}
    for call in sorted(file.calls.calls_in(function), key=lambda c: c.lineno):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Name) and file.imports.qualified(call.func) in _CONVERTERS:
            table.setdefault(first.id, []).append(call)
    return table
