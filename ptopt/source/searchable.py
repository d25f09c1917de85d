"""A file that is searched for words and never parsed for it: what is found once is not looked for again."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ptopt.syntax import IN_WORDS, TO_WORDS

T = TypeVar("T")

_OPENED = re.compile(rb"\s*\(")
_QUOTES = (b'"""', b"'''")


@functools.cache
def _outside_of(indent: int) -> re.Pattern[bytes]:
    """The head of a function or a class that does not stand in a function with that indent."""
    return re.compile(rb"^[ \t]{0,%d}(?:def |async |class |@)" % indent, re.M)


class Searchable:
    """The content of a file, with the identifiers in it."""

    __slots__ = ("_computed", "_defined", "_found", "_identifiers", "_vocabulary", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._defined: frozenset[bytes] | None = None
        self._identifiers: frozenset[bytes] | None = None
        self._vocabulary: bytes | None = None
        self._found: dict[bytes | tuple[re.Pattern[bytes], bytes], bool] = {}
        self._computed: dict[Callable[[bytes], Any], Any] = {}

    def once(self, compute: Callable[[bytes], T]) -> T:
        """`compute(data)`, remembered."""
        if compute not in self._computed:
            self._computed[compute] = compute(self.data)
        known: T = self._computed[compute]
        return known

    @property
    def identifiers(self) -> frozenset[bytes]:
        """The names, keywords and numbers of the file, with those of its texts and comments."""
        if self._identifiers is None:
            self._identifiers = identifiers_of(self.data)
        return self._identifiers

    @property
    def vocabulary(self) -> bytes:
        """Each identifier once, between spaces: a fraction of the file, to look for parts of them in."""
        if self._vocabulary is None:
            self._vocabulary = b" ".join(self.identifiers)
        return self._vocabulary

    def holds(self, words: bytes) -> bool:
        """Do the words occur, as such or in a longer word?"""
        found = self._found.get(words)
        if found is None:
            within = self.vocabulary if IN_WORDS.issuperset(words) else self.data
            found = self._found[words] = words in within
        return found

    def matches(self, pattern: re.Pattern[bytes], having: bytes) -> bool:
        """Does the pattern occur in a file that holds `having`?"""
        found = self._found.get((pattern, having))
        if found is None:
            found = having in self.data and pattern.search(self.data) is not None
            self._found[pattern, having] = found
        return found

    @property
    def defined(self) -> frozenset[bytes]:
        """Each `name` that stands in `def name(`."""
        if self._defined is None:
            heads = (text.partition(b"(") for text in self.data.split(b"def ")[1:])
            self._defined = frozenset(name for name, bracket, _ in heads if bracket and b"\n" not in name)
        return self._defined

    def defines(self, name: bytes) -> bool:
        """Does its code define a function of that name, as far as its words tell? Not where that may stand in a text."""
        if name not in self.defined:
            return False
        data = self.data
        heads = re.finditer(rb"^[ \t]*(?:async )?def %b\(" % re.escape(name), data, re.M)
        return any(all(data.count(quotes, 0, head.start()) % 2 == 0 for quotes in _QUOTES) for head in heads)

    def functions(self, name: bytes) -> Iterator[bytes]:
        """The text of each function of that name, at least: up to the next function or class that does not stand in it."""
        head, data = b"def " + name + b"(", self.data
        at = data.find(head)
        while at >= 0:
            line = data[data.rfind(b"\n", 0, at) + 1 : at]
            outside = _outside_of(len(line) - len(line.lstrip()))
            behind = outside.search(data, at + len(head))
            yield data[at : behind.start() if behind is not None else None]
            at = data.find(head, at + 1)

    def calls(self, name: bytes) -> bool:
        """Does it hold `name(`, with or without spaces between?"""
        if name not in self.identifiers:
            return False
        data, at = self.data, self.data.find(name)
        while at >= 0:
            if (at == 0 or data[at - 1] not in IN_WORDS) and _OPENED.match(data, at + len(name)):
                return True
            at = data.find(name, at + 1)
        return False


def identifiers_of(data: bytes) -> frozenset[bytes]:
    return frozenset(data.translate(TO_WORDS).split())
