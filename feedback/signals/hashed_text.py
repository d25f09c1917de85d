"""A text as keyed hashes of its lines and statements: they can be compared and counted, and tell nothing of the text."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from feedback.signals import statements
from feedback.signals.statements import Unit

MOST_LINES = 10_000  # of a text that is compared: a line takes a kilobyte while it is
_DISTINCTIVE = 12  # characters, without white space, from which on a line is hardly there by chance


class View:
    """A text as units: hashes of what they say, and of the function around each."""

    def __init__(self, units: Sequence[Unit], key: bytes) -> None:
        self.units = units
        names = {
            text: hashed(text, key) for text in {each for unit in units for each in (unit.text, unit.scope)}
        }
        self.hashes = [names[unit.text] for unit in units]
        self.scopes = [names[unit.scope] for unit in units]
        self.known_scopes = frozenset(self.scopes)
        self.distinctive = {names[unit.text] for unit in units if _is_distinctive(unit)}

    def count(self, run: Sequence[str], scope: str | None = None) -> int:
        """How often the run occurs: anywhere, or where some of it is in that function. Nothing occurs nowhere."""
        if not run:
            return 0
        first, length = run[0], len(run)
        return sum(
            self.hashes[at : at + length] == run and (scope is None or scope in self.scopes[at : at + length])
            for at, unit in enumerate(self.hashes)
            if unit == first
        )

    def between(self, start: int, end: int) -> slice:
        """The units that lines `start` to `end` are a part of; an empty slice in its place for no line."""
        touched = [at for at, unit in enumerate(self.units) if unit.last >= start and unit.first <= end]
        if touched:
            return slice(touched[0], touched[-1] + 1)
        after = next((at for at, unit in enumerate(self.units) if unit.first >= start), len(self.units))
        return slice(after, after)


@dataclass(frozen=True, slots=True)
class Text:
    """The three ways in which a text is looked at."""

    exact: View
    loose: View  # without any white space
    statements: View


@lru_cache(maxsize=2)  # the comments on one file come one after the other; what is kept is kept for good
def hashed_text(text: str, key: bytes) -> Text:
    found = statements.statements(text)
    lines = statements.lines(text, found)
    return Text(View(lines, key), View([_squeezed(line) for line in lines], key), View(found, key))


def _squeezed(unit: Unit) -> Unit:
    return Unit("".join(unit.text.split()), unit.first, unit.last, unit.scope)


def _is_distinctive(unit: Unit) -> bool:
    return len("".join(unit.text.split())) >= _DISTINCTIVE


def hashed(text: str, key: bytes) -> str:
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()[:16]
