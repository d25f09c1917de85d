"""One Python file, understood once: its tree, names, places, values and text."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Set
from functools import cached_property, wraps
from itertools import accumulate, chain, repeat
from typing import Any, ParamSpec, TypeVar
from weakref import WeakMethod

from ptopt.findings import Span
from ptopt.project.facts import NO_FACTS, ProjectFacts
from ptopt.project.removed import bounds
from ptopt.source.bindings import Bindings
from ptopt.source.calls import CallGraph
from ptopt.source.context import Context
from ptopt.source.decode import Parsed, parse_python
from ptopt.source.frequency import Frequencies, Frequency
from ptopt.source.guards import Guards
from ptopt.source.host import HostNames
from ptopt.source.imports import Imports
from ptopt.source.index import FunctionNode, Index
from ptopt.source.receivers import Receivers
from ptopt.source.repository import NOTHING_AROUND, Repository
from ptopt.source.searchable import Searchable
from ptopt.source.uses import Uses
from ptopt.source.values import Values
from ptopt.source.waits import Waits

_VOLATILE = (b"volatile=True", b"volatile=not ", b"volatile=(not ", b"volatile=((not ")
_LINE = re.compile(r"\bline \d+")
_LINE_OF_FILE = re.compile(r"\bline \d+ of ")
P = ParamSpec("P")
T = TypeVar("T")


def _holder(args: tuple[object, ...]) -> object:
    """What keeps the answers: the file among the arguments, else the first node."""
    for each in args:
        if isinstance(each, SourceFile):
            return each
    return next(a for a in args if isinstance(a, ast.AST))


def remembered(compute: Callable[P, T]) -> Callable[P, T]:
    """For a function of nodes, and names, and perhaps a file: each answer is computed once.

    Without it, what looks through a whole function or loop for each problem in it is quadratic.
    """

    @wraps(compute)
    def known(*args: P.args, **kwargs: P.kwargs) -> T:
        holder = _holder(args)
        answers: dict[object, T] | None = vars(holder).get("_remembered")
        if answers is None:
            answers = vars(holder)["_remembered"] = {}
        # Without the holder, which would never be freed: no collector looks for cycles during a review.
        key: object = compute if len(args) == 1 else (compute, *[a for a in args if a is not holder])
        try:
            return answers[key]
        except KeyError:
            pass
        answer = answers[key] = compute(*args, **kwargs)
        return answer

    return known


class SourceFile:
    """A file under review. `text` is the Python that was parsed; for a notebook, its code cells joined."""

    def __init__(
        self,
        path: str,
        parsed: Parsed,
        facts: ProjectFacts = NO_FACTS,
        repository: Repository = NOTHING_AROUND,
    ) -> None:
        self.path = path
        self.repository = repository
        self.text = parsed.text
        self.tree = parsed.tree
        self.parsed = parsed
        self._facts = facts
        self._computed: dict[Callable[[SourceFile], Any], Any] = {}
        self._searched: dict[re.Pattern[str], bool] = {}

    @classmethod
    def parse(
        cls,
        path: str,
        data: bytes,
        facts: ProjectFacts = NO_FACTS,
        repository: Repository = NOTHING_AROUND,
    ) -> SourceFile:
        """Raises `ParseError` with a reason fit for the reader when the file cannot be understood."""
        return cls(path, parse_python(path, data), facts, repository)

    def under_review(self, facts: ProjectFacts, repository: Repository) -> SourceFile:
        """The same file with what is known of its project. They share the tree and what follows from it alone."""
        other = SourceFile(self.path, self.parsed, facts, repository)
        other.__dict__["index"] = self.index
        return other

    @cached_property
    def own_facts(self) -> ProjectFacts:
        """What is known of the project, with the versions that the imports of this file bound."""
        return self._facts.capped(bounds(self.path, self.tree))

    @cached_property
    def facts(self) -> ProjectFacts:
        """The same with what the other modules of its programs bound. Other files are read for it: ask when something is found."""
        return self.own_facts.capped(self.repository.bounds(self))

    @cached_property
    def index(self) -> Index:
        return Index(self.tree)

    @cached_property
    def imports(self) -> Imports:
        return Imports(self.index, self.uses)

    @cached_property
    def calls(self) -> CallGraph:
        return CallGraph(self.index, self.receivers, self.uses, self.imports)

    @cached_property
    def receivers(self) -> Receivers:
        return Receivers(self.index, self.imports, self.bindings)

    @cached_property
    def guards(self) -> Guards:
        return Guards(self.index)

    @cached_property
    def context(self) -> Context:
        elsewhere = _not_kept(self._grad_off_elsewhere)
        return Context(
            self.index,
            self.bindings,
            self.imports,
            self.calls,
            self.guards,
            elsewhere,
            _not_kept(self._turned_off_by_volatile),
        )

    def _turned_off_by_volatile(self) -> bool:
        return self._uses_volatile

    @cached_property
    def _uses_volatile(self) -> bool:
        """Is autograd turned off by `volatile=True` or `volatile=not train`, as before torch 0.4, which brought `no_grad` and `item`?"""
        if self.own_facts.at_least("torch", "0.4") is True:
            return False

        modern = (b"no_grad", b".item()")
        if any(words in self.data for words in modern):
            return False  # before other files are read

        def mentioned(words: bytes) -> bool:
            return words in self.data or self.repository.mentions(words)

        return any(map(mentioned, _VOLATILE)) and not any(map(self.repository.mentions, modern))

    @cached_property
    def bindings(self) -> Bindings:
        return Bindings(self.index, self.uses)

    @cached_property
    def values(self) -> Values:
        return Values(
            self.index, self.imports, self.calls, self.bindings, self.host, in_full=self.repository.in_full
        )

    @cached_property
    def host(self) -> HostNames:
        elsewhere = _not_kept(self._sent_elsewhere)
        return HostNames(self.index, self.imports, self.calls, self.bindings, elsewhere)

    @cached_property
    def frequencies(self) -> Frequencies:
        elsewhere = _not_kept(self._frequency_elsewhere)
        return Frequencies(self.index, self.calls, self.values, self.context, self.guards, elsewhere)

    def _grad_off_elsewhere(self, function: FunctionNode) -> list[bool]:
        """Of each call of the function in another file: whether autograd is off there."""
        return [other.context.grad_off(call) for other, call in self.repository.callers(self, function)]

    def _sent_elsewhere(self, function: FunctionNode) -> list[bool]:
        """Of each call of the function in another file: whether its result is sent to the device afterwards."""
        return [other.host.sends_result(call) for other, call in self.repository.callers(self, function)]

    def _frequency_elsewhere(self, function: FunctionNode) -> Frequency | None:
        """How often other files call the function: the weightiest of the calls found."""
        found = [
            (other.frequencies.of(call), other.path, other.head_line(call.lineno))
            for other, call in self.repository.callers(self, function)
        ]
        if not found:
            return None
        best, path, line = max(found, key=lambda one: one[0].weight)
        reason = _in_other_file(best.reason, path, line)
        return Frequency(best.often, 0, reason, best.in_worker, best.trains)

    def definition_of(
        self, call: ast.Call, matters: Callable[[Searchable, bytes], bool] | None = None
    ) -> tuple[SourceFile, FunctionNode] | None:
        """The function that a call runs, with its file: of this file, or the only one of its name in the repository.

        `matters` as in `Repository.definition`.
        """
        own = self.calls.resolve(call)
        return (self, own) if own is not None else self.repository.definition(self, call, matters)

    @cached_property
    def waits(self) -> Waits:
        return Waits(self.index, self.imports, self.calls, self.values, self.guards, self.bindings)

    @cached_property
    def uses(self) -> Uses:
        return Uses(self.index)

    @property
    def called_names(self) -> Set[str]:
        """The names that `calls_named` gives calls of."""
        return self.calls.by_name.keys()

    def calls_named(self, name: str) -> list[ast.Call]:
        """Calls of anything whose dotted name ends in `name`, as the library spells it, in source order."""
        return self.calls.by_name.get(name, [])

    @cached_property
    def _reads(self) -> dict[tuple[FunctionNode | None, str], list[ast.Name]]:
        table: dict[tuple[FunctionNode | None, str], list[ast.Name]] = {}
        read = (name for name in self.index.of_type(ast.Name) if name.ctx.__class__ is ast.Load)
        for function, name in self.index.functions_of(read):
            table.setdefault((function, name.id), []).append(name)
        return table

    def reads_of(self, function: FunctionNode | None, name: str) -> list[ast.Name]:
        """Where the function itself (None: the module) reads the name, in source order."""
        return self._reads.get((function, name), [])

    # -- text ------------------------------------------------------------------------------------------

    @cached_property
    def data(self) -> bytes:
        """The UTF-8 form of the text: what byte offsets of edits count in."""
        return self.text.encode("utf-8", "surrogatepass")

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.data.split(b"\n")

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(map((1).__add__, map(len, self._lines[:-1])))]

    def offset(self, line: int, column: int) -> int:
        """Byte offset of a 1-based line and an `ast` column."""
        return self._line_starts[line - 1] + column

    def line_at(self, offset: int) -> int:
        """1-based line of a byte offset."""
        return bisect_right(self._line_starts, offset)

    def bounds(self, node: ast.AST) -> tuple[int, int]:
        """Byte offsets of the start and the end of an expression or statement."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def source(self, node: ast.AST) -> str:
        if node.lineno == node.end_lineno:  # type: ignore[attr-defined]
            line = self._lines[node.lineno - 1]  # type: ignore[attr-defined]
            return line[node.col_offset : node.end_col_offset].decode("utf-8", "surrogatepass")  # type: ignore[attr-defined]
        start, end = self.bounds(node)
        return self.data[start:end].decode("utf-8", "surrogatepass")

    def line(self, number: int) -> str:
        """Text of a line, without its end."""
        return self._lines[number - 1].decode("utf-8", "surrogatepass").rstrip("\r\n")

    def span(self, node: ast.AST) -> Span:
        return Span(node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined]

    def head_line(self, line: int) -> int:
        """Line of the file on disk: another one than in `text` only for notebooks."""
        lines = self.parsed.head_lines
        return lines[min(line, len(lines)) - 1] if lines is not None else line

    @property
    def numbered_as_on_disk(self) -> bool:
        return self.parsed.numbered_as_on_disk

    @property
    def is_notebook(self) -> bool:
        return self.parsed.head_lines is not None

    # -- the file as a whole ---------------------------------------------------------------------------

    def search(self, pattern: re.Pattern[str], words: tuple[str, ...] = ()) -> bool:
        """Whether the pattern occurs in the text; each is looked for once.

        `words`: in lower case, one of which is in whatever it finds; plain words are found many times faster.
        """
        if pattern not in self._searched:
            may_be = not words or any(word in self.lowered for word in words)
            self._searched[pattern] = may_be and pattern.search(self.text) is not None
        return self._searched[pattern]

    @cached_property
    def lowered(self) -> str:
        """The text in lower case, for questions on words."""
        return self.text.lower()

    def once(self, compute: Callable[[SourceFile], T]) -> T:
        """`compute(self)`, remembered: for tables that several rules read."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        known: T = self._computed[compute]
        return known

    @cached_property
    def uses_accelerator(self) -> bool:
        """Does the file mention a device other than the CPU, or a framework that picks one?"""
        marks = (
            "device",  # in most files
            "cuda",
            "accelerat",
            "lightning",
            ".gpu",
            "fabric",
            "xpu",
            "trainer",
            "hpu",
            "mps",
            "deepspeed",
        )
        return any(mark in self.lowered for mark in marks)


def _in_other_file(reason: str, path: str, line: int) -> str:
    """`on every step of the loop at line 6 of train.py, at line 9 there`: whose lines these are, which the reader has not open."""
    if _LINE_OF_FILE.search(reason):
        return f"{reason}, at line {line} of {path}"
    where = chain([f" of {path}"], repeat(" there"))
    return _LINE.sub(lambda named: f"{named[0]}{next(where)}", f"{reason}, at line {line}")


def _not_kept(method: Callable[P, T]) -> Callable[P, T]:
    """The method without a reference to its file, so that the tree goes away with the last name of the file."""
    reference = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = reference()
        if bound is None:
            raise ReferenceError("the file is gone that this was computed of")
        return bound(*args, **kwargs)

    return call
