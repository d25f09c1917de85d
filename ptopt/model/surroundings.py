"""What stands around a function and says what its lines mean: set-up of the file, `__init__`, callers, and what it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.model.region_facts import function_between
from ptopt.source.calls import called_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, Loop

MAX_LINES = 6  # of one passage
MAX_WIDTH = 160  # characters of one line
_SET_UP = (
    "DataLoader",
    "autocast",
    "compile",
    "set_float32_matmul_precision",
    "GradScaler",
    "Trainer",
    "Accelerator",
)
_CALLERS = 2
_CALLEES = 2
INIT, SET_UP, CALLER, CALLEE = range(4)  # the first is cut last


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines from around a region, under a title. `importance` is one of `INIT` to `CALLEE`."""

    importance: int
    title: str
    lines: tuple[str, ...]


def surroundings(source: SourceFile, start: int, end: int) -> tuple[Passage, ...]:
    """The passages for the lines `start` to `end`, those first that other regions of the file share."""
    try:
        return tuple(_passages(source, start, end))
    except RecursionError:  # expressions nested deeper than Python can print
        return ()


def _passages(source: SourceFile, start: int, end: int) -> Iterator[Passage]:
    set_up = _set_up(source, start, end)
    if set_up:
        yield Passage(SET_UP, "Set up in this file:", set_up)
    function = function_between(source, start, end)
    if function is None:
        return
    owner = source.index.class_of(function)
    if owner is not None and function.name != "__init__":
        made = _constructor(source, owner, function)
        if made:
            yield Passage(INIT, f"{owner.name}.__init__ sets:", made)
    yield from _callers(source, function)
    yield from _callees(source, function)


def _set_up(source: SourceFile, start: int, end: int) -> tuple[str, ...]:
    """Loaders, compilation and precision, where they are set up outside of the region."""
    return tuple(text for line, text in source.once(_all_set_up) if not start <= line <= end)[:MAX_LINES]


def _all_set_up(source: SourceFile) -> list[tuple[int, str]]:
    """The first statements of a file that set something up, with their lines."""
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
    calls = [call for name in _SET_UP for call in source.calls_named(name)]
    statements = {source.index.statement_of(call): None for call in sorted(calls, key=lambda c: c.lineno)}
    found = [s for s in statements if isinstance(s, simple)]
    return [(s.lineno, _text(s)) for s in found[: 4 * MAX_LINES]]


def _constructor(source: SourceFile, owner: ast.ClassDef, function: FunctionNode) -> tuple[str, ...]:
    """The lines of `__init__` that set an attribute of `self` which the function names."""
    table = _attributes(owner, source)
    used = {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    found = {line: text for name in used for line, text in table.get(name, ())}
    return tuple(text for _, text in sorted(found.items()))[: 2 * MAX_LINES]


@remembered
def _attributes(owner: ast.ClassDef, source: SourceFile) -> dict[str, list[tuple[int, str]]]:
    """Attribute -> the lines of `__init__` that set or register it."""
    table: dict[str, list[tuple[int, str]]] = {}
    made = next((f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
    for node in ast.walk(made) if made is not None else ():
        if not isinstance(node, ast.stmt):
            continue
        names: list[str] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [t.attr for t in targets if isinstance(t, ast.Attribute)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
            first = node.value.args[0]
            if called_name(node.value).startswith("register_") and isinstance(first, ast.Constant):
                names = [str(first.value)]
        for name in names:
            table.setdefault(name, []).append((node.lineno, _text(node)))
    return table


def _callers(source: SourceFile, function: FunctionNode) -> Iterator[Passage]:
    calls = [(source, call) for call in source.calls.callers(function)[:_CALLERS]]
    if len(calls) < _CALLERS:
        calls += source.repository.callers(source, function)
    for file, call in calls[:_CALLERS]:
        around = file.index.function_of(call)
        name = file.index.symbol_of(around) if around is not None else "the module"
        statement = file.index.statement_of(call)
        loops: list[Loop] = list(file.index.loops_of(call))[:2]
        headers = [_text(loop).partition("\n")[0] for loop in reversed(loops)]
        yield Passage(CALLER, f"Called in {name}:", (*headers, _text(statement)))


def _callees(source: SourceFile, function: FunctionNode) -> Iterator[Passage]:
    seen: set[FunctionNode] = {function}
    for call in source.calls.calls_in(function):
        found = source.calls.resolve(call)
        if found is None or found in seen or source.index.enclosing(found, FUNCTIONS) is function:
            continue
        seen.add(found)
        body = [s for s in found.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        lines = [line for s in body[:MAX_LINES] for line in ast.unparse(s).split("\n")]
        yield Passage(
            CALLEE,
            f"It calls {source.index.symbol_of(found)}:",
            tuple(x[:MAX_WIDTH] for x in lines[:MAX_LINES]),
        )
        if len(seen) > _CALLEES:
            return


def _text(statement: ast.AST) -> str:
    """The statement on one line; of a block the header."""
    return " ".join(ast.unparse(statement).partition("\n")[0].split())[:MAX_WIDTH]
