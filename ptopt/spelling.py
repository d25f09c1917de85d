"""Which of the known names somebody may have meant by a name that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import commonprefix

BY_MODEL = (
    "found by a model"  # the kind of a rule's name that nobody means to write: only a model can raise it
)
_LONGEST = 100  # characters of a name that are compared
_MOST = 3
_SLIPS = 2  # edits that can be slips of the fingers, wherever they are
_ID = re.compile(r"([a-z]+)(\d+)")
_READ_AS = str.maketrans("oil", "011")  # letters that are taken for digits


def similar(text: str, known: Iterable[str]) -> list[str]:
    """The names that begin like `text`, else those within a few edits of it, the nearest first; three at most.

    Of names of several words each written word has to be like one of theirs, beyond a slip or two; and another digit makes
    another id, not a similar one.
    """
    folded = {name.lower(): name for name in known}
    wanted = text.lower()[:_LONGEST]
    starting = sorted(name for name in folded if len(wanted) > 2 and name.startswith(wanted))
    if starting:
        return [folded[name] for name in starting[:_MOST]]
    least = max(1, len(wanted) // 3)
    near = [
        (edits, -len(commonprefix([wanted, name])), name)
        for name in folded
        if abs(len(name) - len(wanted)) <= least
        and (edits := distance(wanted, name)) <= least
        and (
            _is_id_like(wanted, name) if _ID.fullmatch(name) else edits <= _SLIPS or _has_words(wanted, name)
        )
    ]
    return [folded[name] for _, _, name in sorted(near)[:_MOST]]


def _is_id_like(text: str, name: str) -> bool:
    """Has it the letters of the id, or nearly, and the digits of it: two swapped, or one too many or too few?"""
    known = _ID.fullmatch(name)
    letters = known[1] if known is not None else ""
    written = _ID.fullmatch(
        letters + text[len(letters) :].translate(_READ_AS) if text.startswith(letters) else text
    )
    if known is None or written is None or distance(written[1], letters) > 1:
        return False
    if sorted(written[2]) == sorted(known[2]):
        return distance(written[2], known[2]) <= 1
    return len(written[2]) != len(known[2]) and distance(written[2], known[2]) == 1


def _has_words(text: str, name: str) -> bool:
    """Is each word of the text like one of the name?"""
    words = name.split("-")
    return all(
        any(distance(wanted, word) <= max(1, len(wanted) // 3) for word in words)
        for wanted in text.split("-")
    )


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
