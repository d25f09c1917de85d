"""Was a suggestion taken? GitHub sends no event for it, so the text tells: what we suggested now stands where the
old lines stood.

No code is kept. A suggestion is remembered as keyed hashes of line blocks and of how often they occurred; a later
text of the file is asked the same questions.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


class Taken(str, enum.Enum):
    """How far a later text follows the suggestion."""

    EXACT = "exact"  # the suggested lines, up to white space at line ends
    SIMILAR = "similar"  # the suggested lines, formatted otherwise
    NO = "no"

    def __str__(self) -> str:
        return self.value


_TELLING = 12  # characters, without white space, from which on a line is hardly there by chance


@dataclass(frozen=True, slots=True)
class _Block:
    """A run of lines: how many, their hash as they stand and without white space, and how often it occurred."""

    lines: int
    exact: str
    loose: str
    count: int  # occurrences without white space, in the text that the suggestion was made for


def remember(text: str, start: int, end: int, replacement: Sequence[str], key: bytes) -> dict[str, Any]:
    """What `taken` needs to know of the suggestion to replace lines `start` to `end` (1-based) of `text`."""
    lines = text.split("\n")
    old, new = lines[start - 1 : end], list(replacement)
    if max((len(line) for line in _squeezed(new)), default=0) < _TELLING:
        # Lines to delete, or a lone `else:`, prove nothing by themselves: they do between their neighbours.
        before, after = lines[max(0, start - 2) : start - 1], lines[end : end + 1]
        old, new = [*before, *old, *after], [*before, *new, *after]
    kept = _is_part(_squeezed(old), _squeezed(new))
    return {"old": asdict(_block(old, lines, key)), "new": asdict(_block(new, lines, key)), "kept": kept}


def taken(text: str, suggestion: dict[str, Any], key: bytes) -> Taken:
    """What became of the suggestion in a later `text` of the same file."""
    lines = text.split("\n")
    old, new = _Block(**suggestion["old"]), _Block(**suggestion["new"])
    if old.loose == new.loose:  # only the formatting differs, or nothing does
        return Taken.NO
    if _count(lines, new, key) <= new.count:
        return Taken.NO
    if not suggestion["kept"] and _count(lines, old, key) >= old.count:
        return Taken.NO
    return Taken.EXACT if _count(lines, new, key, exact=True) else Taken.SIMILAR


def _is_part(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(list(whole[at : at + len(part)]) == list(part) for at in range(len(whole) - len(part) + 1))


def _block(block: Sequence[str], text: Sequence[str], key: bytes) -> _Block:
    found = _Block(
        len(block), _hash([_trimmed(line) for line in block], key), _hash(_squeezed(block), key), 0
    )
    return _Block(found.lines, found.exact, found.loose, _count(text, found, key))


def _count(text: Sequence[str], block: _Block, key: bytes, *, exact: bool = False) -> int:
    wanted = block.exact if exact else block.loose
    lines = [_trimmed(line) if exact else "".join(line.split()) for line in text]
    windows = range(len(lines) - block.lines + 1)
    return sum(_hash(lines[at : at + block.lines], key) == wanted for at in windows)


def _trimmed(line: str) -> str:
    return line.rstrip()


def _squeezed(lines: Sequence[str]) -> list[str]:
    return ["".join(line.split()) for line in lines]


def _hash(lines: Sequence[str], key: bytes) -> str:
    return hmac.new(key, "\n".join(lines).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]
