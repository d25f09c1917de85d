"""Which of the known names somebody may have meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import commonprefix

BY_MODEL = (
    "found by a model"  # the kind of a rule's name that nobody means to write: only a model can raise it
)
_LONGEST = 100  # characters of a name that are compared
_MOST = 3


def similar(text: str, known: Iterable[str]) -> list[str]:
    """The names that begin like `text`, else those within a few edits of it, the nearest first; three at most."""
    folded = {name.lower(): name for name in known}
    wanted = text.lower()[:_LONGEST]
    starting = sorted(name for name in folded if len(wanted) > 2 and name.startswith(wanted))
    if starting:
        return [folded[name] for name in starting[:_MOST]]
    least = max(1, len(wanted) // 3)
    near = [
        (edits, -len(commonprefix([wanted, name])), name)
        for name in folded
        if abs(len(name) - len(wanted)) <= least and (edits := distance(wanted, name)) <= least
    ]
    return [folded[name] for _, _, name in sorted(near)[:_MOST]]


def distance(one: str, other: str) -> int:
    """How many characters to insert, delete, replace or swap with their neighbour make one name of the other."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, left in enumerate(one, start=1):
        current = [row]
        for column, right in enumerate(other, start=1):
            best = min(above[column] + 1, current[-1] + 1, above[column - 1] + (left != right))
            swapped = row > 1 and column > 1 and left == other[column - 2] and one[row - 2] == right
            current.append(min(best, before[column - 2] + 1) if swapped else best)
        before, above = above, current
    return above[-1]
