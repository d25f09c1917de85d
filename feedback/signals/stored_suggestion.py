"""What is stored of a suggestion: hashes of the old and the new lines, and of how often they occurred. No code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from feedback.signals.hashed_text import MOST_LINES, Text, View, hashed, hashed_text

FORM = 2  # of what is stored; any other form matches nothing


@dataclass(frozen=True, slots=True)
class Replacement:
    """Lines `start` to `end` (1-based) are to become `lines`."""

    start: int
    end: int
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Run:
    """Units in a row, and how often they occurred. `in_scope`: in the function alone, None where that does not matter."""

    units: list[str]
    count: int
    in_scope: int | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """A suggestion as lines, or as statements: the old ones; whether they stay, as a part of the new ones; whether they stood
    in several functions; and the runs of which one is to be there more often."""

    old: Run
    kept: bool
    several: bool
    new: list[Run]


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much a statement is to occur more or less often."""

    unit: str
    by: int
    count: int
    in_scope: int


def suggestion_hashes(
    text: str, replacement: Replacement, key: bytes, others: Sequence[Replacement] = ()
) -> dict[str, Any]:
    """What `match_suggestion` needs to know of a suggestion for `text`; `others` are further ones for the same text.

    {} where only the white space differs, so that nothing could be detected, and for a text of more than 50,000 lines.
    """
    if text.count("\n") > MOST_LINES:
        return {}
    old, (alone, here), (together, there) = (
        hashed_text(text, key),
        _changed(text, replacement, (), key),
        _changed(text, replacement, others, key),
    )
    before = (replacement.start, replacement.end)
    if old.loose.hashes[old.loose.between(*before)] == alone.loose.hashes[alone.loose.between(*here)]:
        return {}
    within = old.statements.between(*before)
    scope = (
        old.statements.scopes[within.start] if within.start < len(old.statements.scopes) else hashed("", key)
    )
    views = {
        name: asdict(
            _lines(
                scope,
                _Place(getattr(old, name), before),
                _Place(getattr(alone, name), here),
                _Place(getattr(together, name), there),
            )
        )
        for name in ("exact", "loose", "statements")
    }
    now = alone.statements
    differences = _differences(old.statements, within, now, now.hashes[now.between(*here)], scope)
    return {"form": FORM, "scope": scope, **views, "differences": [asdict(each) for each in differences]}


def read(stored: Mapping[str, Any]) -> Lines:
    return Lines(
        Run(**stored["old"]), stored["kept"], stored["several"], [Run(**run) for run in stored["new"]]
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Some lines of a text."""

    view: View
    lines: tuple[int, int]

    @property
    def slice(self) -> slice:
        return self.view.between(*self.lines)

    @property
    def units(self) -> list[str]:
        return self.view.hashes[self.slice]

    @property
    def above(self) -> list[str]:
        return self.view.hashes[max(0, self.slice.start - 1) : self.slice.start]

    @property
    def below(self) -> list[str]:
        return self.view.hashes[self.slice.stop : self.slice.stop + 1]

    @property
    def distinctive(self) -> bool:
        return not self.view.distinctive.isdisjoint(self.units)


def _lines(scope: str, before: _Place, alone: _Place, together: _Place) -> Lines:
    """`before` in the text as it is, `alone` with the suggestion, `together` with all suggestions."""
    view, old, new = before.view, before.units, alone.units
    # The same lines stand in several functions: then nothing but that function counts.
    several = view.count(old) > 1
    # What is short, or stands there twice, proves nothing by itself: it does between its neighbours. Those may be what
    # another suggestion makes of them.
    twice = view.count(old, scope) > 1
    aboves = _different(alone.above, together.above)
    belows = _different(alone.below, together.below)
    if twice or not before.distinctive:
        old = [*before.above, *old, *before.below]
    runs: list[tuple[list[str], bool]] = []  # and whether only the function counts
    if twice or not alone.distinctive:
        runs = [([*above, *new, *below], several) for above, below in product(aboves, belows)]
    else:
        runs = [(new, True)]
        if not several:
            telling = alone.view.distinctive | together.view.distinctive
            runs += [([*above, *new], False) for above in aboves if not telling.isdisjoint(above)]
            runs += [([*new, *below], False) for below in belows if not telling.isdisjoint(below)]

    def counted(units: list[str], scoped: bool) -> Run:
        return Run(units, view.count(units), view.count(units, scope) if scoped else None)

    kept = _is_part(before.units, new)
    return Lines(counted(old, several), kept, several, [counted(*run) for run in runs])


def _differences(old: View, within: slice, new: View, units: Sequence[str], scope: str) -> list[Difference]:
    """What becomes of the statements; [] where that would prove nothing. `units` are those of the suggestion."""
    change = Counter(units)
    change.subtract(old.hashes[within])
    found = [
        Difference(unit, by, old.count([unit]), old.count([unit], scope)) for unit, by in change.items() if by
    ]
    replaces = any(each.by < 0 for each in found)
    tells = any(each.by > 0 and each.unit in new.distinctive for each in found)
    unclear = any(each.by < 0 and each.in_scope > -each.by for each in found)
    return found if replaces and tells and not unclear else []


def _changed(
    text: str, replacement: Replacement, others: Sequence[Replacement], key: bytes
) -> tuple[Text, tuple[int, int]]:
    """The text with the suggestions applied, and the lines that are now those of `replacement`."""
    apart = [o for o in others if o.end < replacement.start or o.start > replacement.end]
    lines = text.split("\n")
    for one in sorted([replacement, *apart], key=lambda one: one.start, reverse=True):
        lines[one.start - 1 : one.end] = one.lines
    moved = sum(len(o.lines) - (o.end - o.start + 1) for o in apart if o.end < replacement.start)
    start = replacement.start + moved
    return hashed_text("\n".join(lines), key), (start, start + len(replacement.lines) - 1)


def _different(one: list[str], other: list[str]) -> list[list[str]]:
    return [one] if one == other else [one, other]


def _is_part(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(list(whole[at : at + len(part)]) == list(part) for at in range(len(whole) - len(part) + 1))
