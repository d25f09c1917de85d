"""Lines of the code for places of a trace: which call of the function it must have been.

A trace names the function and what it called there. The code says where in that function such a call stands: one place is the
line, several are candidates.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ptopt.profiles.frames import Frame, Place
from ptopt.profiles.profile import Cost, Profile

_LARGEST = 2 << 20
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = {
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
    "<lambda>": ast.Lambda,
}
_OPERATORS: Mapping[str, tuple[type[ast.AST], ...]] = {
    "add": (ast.Add,), "sub": (ast.Sub,), "rsub": (ast.Sub,), "mul": (ast.Mult,), "div": (ast.Div,), "true_divide": (ast.Div,),
    "matmul": (ast.MatMult,), "pow": (ast.Pow,), "neg": (ast.USub,), "remainder": (ast.Mod,), "floor_divide": (ast.FloorDiv,),
    "gt": (ast.Gt,), "lt": (ast.Lt,), "ge": (ast.GtE,), "le": (ast.LtE,), "eq": (ast.Eq,), "ne": (ast.NotEq,),
    "select": (ast.Subscript,), "slice": (ast.Subscript,), "index": (ast.Subscript,), "index_put": (ast.Subscript,),
    "unbind": (ast.For,),
}  # fmt: skip
_NUMBERS = frozenset({"float", "int", "bool"})
_READS = frozenset({"item", "is_nonzero", "_local_scalar_dense"})


@dataclass(frozen=True, slots=True)
class Line:
    """A cost and the lines of `path` that can have caused it; one line: it did."""

    path: str
    lines: tuple[int, ...]
    cost: Cost


def named_lines(profile: Profile, files: Mapping[str, str]) -> tuple[Line, ...]:
    """The costs whose place is in one of `files` (path -> code), in the order of the costs."""
    codes = _Codes(files)
    called: dict[Frame, set[str]] = {}
    for cost in profile.costs:
        called.setdefault(cost.place.frame, set()).add(cost.place.callee)
    found = []
    for cost in profile.costs:
        code = codes.of(cost.place.frame)
        if code is not None:
            others = called[cost.place.frame] - {cost.place.callee}
            found.append(Line(code.path, code.lines(cost.place, others), cost))
    return tuple(found)


def own_paths(traced: Iterable[str], files: Iterable[str]) -> frozenset[str]:
    """Those of the traced paths that are the end of the path of one of the files."""
    ends: set[tuple[str, ...]] = set()
    for path in files:
        parts = tuple(_parts(path))
        ends.update(parts[at:] for at in range(len(parts)))
    return frozenset(path for path in traced if tuple(_parts(path)) in ends)


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]


class _Codes:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._parsed: dict[str, _Code | None] = {}
        self._found: dict[Frame, _Code | None] = {}

    def of(self, frame: Frame) -> _Code | None:
        """The file that has this function, the one whose path fits best; None where two fit as well."""
        if frame not in self._found:
            self._found[frame] = self._fitting(frame)
        return self._found[frame]

    def _fitting(self, frame: Frame) -> _Code | None:
        traced = _parts(frame.path)[::-1]
        fits: list[tuple[int, _Code]] = []
        for path in self._files:
            ours = _parts(path)[::-1]
            shared = min(len(traced), len(ours))
            if shared and traced[:shared] == ours[:shared]:
                code = self._code(path)
                if code is not None and code.function(frame) is not None:
                    fits.append((shared, code))
        best = max((length for length, _ in fits), default=0)
        chosen = [code for length, code in fits if length == best]
        return chosen[0] if len(chosen) == 1 else None

    def _code(self, path: str) -> _Code | None:
        if path not in self._parsed:
            self._parsed[path] = _parse(path, self._files[path])
        return self._parsed[path]


def _parse(path: str, text: str) -> _Code | None:
    if len(text) > _LARGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Code(path, ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Code:
    """A file of the user."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self._tree = tree
        self._functions: list[tuple[str, int, int, ast.AST]] = [("<module>", 1, 1 << 31, tree)]
        self._classes: dict[str, set[str]] = {}  # class -> names that its instances are bound to
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                self._functions.append((node.name, first, node.end_lineno or first, node))
            for name, kind in _COMPREHENSIONS.items():
                if isinstance(node, kind):
                    self._functions.append((name, node.lineno, node.end_lineno or node.lineno, node))  # type: ignore[attr-defined]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = _called(node.value)
                names = {name for target in node.targets for name in [_last(target)] if name}
                self._classes.setdefault(made, set()).update(names)

    def function(self, frame: Frame) -> ast.AST | None:
        fits = [
            (end - start, node)
            for name, start, end, node in self._functions
            if name == frame.function and start <= frame.line <= end
        ]
        return min(fits, key=lambda item: item[0])[1] if fits else None

    def lines(self, place: Place, others: set[str]) -> tuple[int, ...]:
        """Where in its function a place can be; `others` is what else was called there."""
        function = self.function(place.frame)
        if function is None or not place.callee:
            return ()
        nodes = list(_own_nodes(function))
        if place.callee.startswith("nn.Module: "):
            return _unique(self._module_calls(nodes, place.callee.removeprefix("nn.Module: "), others))
        return _unique(_calls(nodes, place.callee))

    def _module_calls(self, nodes: list[ast.AST], kind: str, others: set[str]) -> Iterator[int]:
        """Calls of what is known to be of this class; else of names that no other call of the trace explains."""
        calls = [(node, _called(node)) for node in nodes if isinstance(node, ast.Call)]
        known = self._classes.get(kind, set())
        sure = [_line(node) for node, name in calls if name in known]
        if sure:
            yield from sure
            return
        bound = {name for names in self._classes.values() for name in names}
        yield from (
            _line(node)
            for node, name in calls
            if name in {"model", "net", "network", "module", *bound} - others
        )


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.ClassDef) and isinstance(function, ast.Module):
            continue
        if not isinstance(node, _FUNCTIONS):
            waiting.extend(ast.iter_child_nodes(node))


def _calls(nodes: Iterable[ast.AST], callee: str) -> Iterator[int]:
    if callee.rpartition(".")[2] == "step":
        yield from _steps(nodes, callee)
        return
    operator = callee.rpartition("::")[2].rstrip("_") if "::" in callee else ""
    kinds = _OPERATORS.get(operator, ())
    for node in nodes:
        if isinstance(node, ast.Call):
            name = _called(node)
            reads = operator in _READS and name in _NUMBERS | _READS
            if name == callee or (operator and (name.rstrip("_") == operator or reads)):
                yield _line(node)
            elif callee in ("__next__", "__iter__") and name in ("next", "iter"):
                yield _line(node)
        elif isinstance(node, (ast.For, ast.comprehension)) and callee in ("__next__", "__iter__"):
            yield node.iter.lineno
        elif isinstance(node, ast.With) and callee in ("__enter__", "__exit__"):
            yield node.lineno
        elif operator in _READS and isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            yield node.test.lineno
        elif (
            kinds and isinstance(node, (ast.BinOp, ast.AugAssign, ast.UnaryOp)) and isinstance(node.op, kinds)
        ):
            yield node.lineno
        elif kinds and isinstance(node, ast.Compare) and isinstance(node.ops[0], kinds):
            yield node.lineno
        elif kinds and isinstance(node, (ast.Subscript, ast.For)) and isinstance(node, kinds):
            yield node.lineno


def _steps(nodes: Iterable[ast.AST], callee: str) -> Iterator[int]:
    """Optimizers, schedulers and profilers all have a `step`: what it is called on tells them apart."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            on = _last(node.func.value).lower()
            kind = "profiler.step" if "prof" in on else "scheduler.step" if "sched" in on else "step"
            if kind == callee:
                yield _line(node)


def _called(node: ast.Call) -> str:
    return _last(node.func)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _line(node: ast.Call) -> int:
    """Of the name that is called: in a chain over several lines each call has its own."""
    return node.func.end_lineno or node.lineno


def _unique(lines: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(lines)))
