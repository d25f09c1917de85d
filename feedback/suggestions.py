"""Was a suggestion applied? GitHub sends no event for it, so the text is compared: what we suggested now stands where
the old lines stood.

No code is kept. A suggestion is stored as keyed hashes of line blocks and of how often they occurred; a later
text of the file is hashed and counted in the same way.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


class Match(str, enum.Enum):
    """How closely a later text follows the suggestion."""

    EXACT = "exact"  # the suggested lines, up to white space at line ends
    SIMILAR = "similar"  # the suggested lines, formatted otherwise
    NO = "no"

    def __str__(self) -> str:
        return self.value


_DISTINCTIVE = 12  # characters, without white space, from which on a line is hardly there by chance


@dataclass(frozen=True, slots=True)
class _Block:
    """A run of lines: how many, their hash as they stand and without white space, and how often it occurred."""

    lines: int
    exact: str
    loose: str
    count: int  # occurrences without white space, in the text that the suggestion was made for


@dataclass(frozen=True, slots=True)
class Replacement:
    """Lines `start` to `end` (1-based) are to become `lines`."""

    start: int
    end: int
    lines: Sequence[str]


def suggestion_hashes(
    text: str, replacement: Replacement, key: bytes, others: Sequence[Replacement] = ()
) -> dict[str, Any]:
    """What `match_suggestion` needs to know of a suggestion for `text`; `others` are further ones for the same text."""
    lines = text.split("\n")
    old, new = lines[replacement.start - 1 : replacement.end], list(replacement.lines)
    if _squeezed(old) == _squeezed(new):  # only the formatting differs, so that nothing could be detected
        return {}
    kept = _is_part(_squeezed(old), _squeezed(new))
    blocks = [new]
    if not _is_distinctive(new):
        # Lines to delete, or a lone `else:`, prove nothing by themselves: they do between their neighbours. Those
        # may be what another suggestion makes of them.
        above, below = _above(lines, replacement, others), _below(lines, replacement, others)
        blocks = [[*before, *new, *after] for before in above for after in below]
        if not _is_distinctive(old):
            old = [*above[0], *old, *below[0]]
    return {
        "old": asdict(_block(old, lines, key)),
        "new": [asdict(_block(block, lines, key)) for block in blocks],
        "kept": kept,
    }


def match_suggestion(text: str, suggestion: dict[str, Any], key: bytes) -> Match:
    """Whether a later `text` of the same file follows the suggestion; NO for {}."""
    if not suggestion:
        return Match.NO
    lines = text.split("\n")
    old, news = _Block(**suggestion["old"]), [_Block(**block) for block in suggestion["new"]]
    if not suggestion["kept"] and _count(lines, old, key) >= old.count:
        return Match.NO
    found = [new for new in news if _count(lines, new, key) > new.count]
    if not found:
        return Match.NO
    exact = any(_count(lines, new, key, exact=True) for new in found)
    return Match.EXACT if exact else Match.SIMILAR


def _above(lines: list[str], replacement: Replacement, others: Sequence[Replacement]) -> list[list[str]]:
    """The line before, and what it is when the other suggestions were applied."""
    changed = lines[: replacement.start - 1]
    for other in sorted(
        (o for o in others if o.end < replacement.start), key=lambda o: o.start, reverse=True
    ):
        changed[other.start - 1 : other.end] = other.lines
    return _different(lines[: replacement.start - 1][-1:], changed[-1:])


def _below(lines: list[str], replacement: Replacement, others: Sequence[Replacement]) -> list[list[str]]:
    """The line after, and what it is when the other suggestions were applied."""
    changed = lines[replacement.end :]
    for other in sorted(
        (o for o in others if o.start > replacement.end), key=lambda o: o.start, reverse=True
    ):
        changed[other.start - replacement.end - 1 : other.end - replacement.end] = other.lines
    return _different(lines[replacement.end : replacement.end + 1], changed[:1])


def _different(one: list[str], other: list[str]) -> list[list[str]]:
    return [one] if one == other else [one, other]


def _is_distinctive(lines: Sequence[str]) -> bool:
    return max((len(line) for line in _squeezed(lines)), default=0) >= _DISTINCTIVE


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
    return hmac.digest(key, "\n".join(lines).encode("utf-8", "surrogatepass"), "sha256").hex()[:32]
