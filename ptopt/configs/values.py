"""The values of a configuration file, each with the place where it stands. Offsets count characters of the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

Plain: TypeAlias = "bool | int | float | str | None"


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One value: `value` as the loaders of the format read it, `text` as it is written, without quotes."""

    start: int
    end: int
    value: Plain
    text: str
    size: int = 1

    @property
    def number(self) -> float | None:
        """The value as a number; YAML loaders read `1e-5`, which has no point, as text. None for all else."""
        if isinstance(self.value, bool) or self.value is None:
            return None
        try:
            return float(self.value)
        except (ValueError, OverflowError):
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    start: int
    end: int
    items: tuple[Node, ...]
    size: int

    def __iter__(self) -> Iterator[Node]:
        return iter(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A key and its value. `merged`: it comes through `<<`, so it may stand far away."""

    key: Scalar
    value: Node
    merged: bool = False


@dataclass(frozen=True, eq=False)
class Mapping:
    """Keys are text: `1: x` and `"1": x` have the same one."""

    start: int
    end: int
    entries: tuple[Entry, ...]
    size: int
    flow: bool = False  # written in braces

    @cached_property
    def _by_key(self) -> dict[str, Entry]:
        return {entry.key.text: entry for entry in self.entries}

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def keys(self) -> frozenset[str]:
        return frozenset(self._by_key)

    def entry(self, *path: str) -> Entry | None:
        """The entry at the end of a path of keys: `entry("spec", "template")`."""
        found: Entry | None = None
        node: Node = self
        for key in path:
            found = node._by_key.get(key) if isinstance(node, Mapping) else None
            if found is None:
                return None
            node = found.value
        return found

    def get(self, *path: str) -> Node | None:
        """The value at the end of a path of keys."""
        found = self.entry(*path)
        return None if found is None else found.value

    def mapping(self, *path: str) -> Mapping | None:
        found = self.get(*path)
        return found if isinstance(found, Mapping) else None

    def sequence(self, *path: str) -> tuple[Node, ...]:
        """The items of the list there; empty where there is none."""
        found = self.get(*path)
        return found.items if isinstance(found, Sequence) else ()

    def scalar(self, *path: str) -> Plain:
        """The value of the scalar there; None where there is none, and for null."""
        found = self.get(*path)
        return found.value if isinstance(found, Scalar) else None


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, eq=False)
class Document:
    """A file that was read: `roots` are its documents, of which only YAML has more than one."""

    format: str  # "yaml" | "json" | "toml" | "lines"
    text: str  # without a byte order mark
    roots: tuple[Node, ...]

    @property
    def root(self) -> Mapping | None:
        """The mapping of a file that holds one document, which is a mapping."""
        only = self.roots[0] if len(self.roots) == 1 else None
        return only if isinstance(only, Mapping) else None

    @cached_property
    def _line_ends(self) -> list[int]:
        return list(accumulate(len(line) + 1 for line in self.text.split("\n")))

    def line(self, offset: int) -> int:
        """1-based line of an offset; lines end at a line feed, as those of git."""
        return bisect_right(self._line_ends, offset) + 1

    def column(self, offset: int) -> int:
        """1-based column of an offset, in characters."""
        line = self.line(offset)
        return offset - (self._line_ends[line - 2] if line > 1 else 0) + 1

    def byte(self, offset: int) -> int:
        """The offset in the UTF-8 form of the text: what edits count in."""
        return offset if self.text.isascii() else len(self.text[:offset].encode())


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a file was not read, in words for the one who wrote it."""

    reason: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.reason} (line {self.line})" if self.line else self.reason


def walk(node: Node) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Every entry below a node with the path of keys that leads to it; items of lists add no key."""
    waiting: list[tuple[tuple[str, ...], Node]] = [((), node)]
    while waiting:
        path, current = waiting.pop()
        if isinstance(current, Mapping):
            for entry in current.entries:
                yield (*path, entry.key.text), entry
            waiting += [((*path, e.key.text), e.value) for e in reversed(current.entries)]
        elif isinstance(current, Sequence):
            waiting += [(path, item) for item in reversed(current.items)]


def plain(node: Node) -> object:
    """The value without places, as `json.loads` would give it."""
    if isinstance(node, Mapping):
        return {entry.key.text: plain(entry.value) for entry in node.entries}
    return [plain(item) for item in node.items] if isinstance(node, Sequence) else node.value
