"""Fixes as diffs: what the edits of a file change, line by line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptopt.findings import Edit, Finding, Review
from ptopt.verify import EditError, apply_edits


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines `start` on of the old text, which are `old`, become `new`. Lines keep their line ends."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


class Positions:
    """Byte offsets of a text's UTF-8 form as lines and columns."""

    def __init__(self, text: str) -> None:
        self.data = text.encode("utf-8", "surrogatepass")
        self.starts = [0, *(match.end() for match in re.finditer(rb"\n", self.data))]

    def line(self, offset: int) -> int:
        """The 1-based line of a byte; a line feed belongs to the line it ends. Raises `EditError`."""
        if offset > len(self.data):
            raise EditError(f"edit ends at byte {offset}, the text at byte {len(self.data)}")
        return bisect_right(self.starts, offset)

    def bytes_at(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, the column in bytes."""
        line = self.line(offset)
        return line, offset - self.starts[line - 1] + 1

    def characters_at(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, the column in characters."""
        line = self.line(offset)
        before = self.data[self.starts[line - 1] : offset]
        return line, len(before.decode("utf-8", "replace")) + 1

    def text(self, first: int, last: int) -> str:
        """Lines `first` to `last`, with their line ends."""
        end = self.starts[last] if last < len(self.starts) else len(self.data)
        return self.data[self.starts[first - 1] : end].decode("utf-8", "surrogatepass")


def hunks(positions: Positions, edits: Sequence[Edit]) -> list[Hunk]:
    """The changed lines, no more, in order. Raises `EditError` for edits that overlap or leave the text."""
    found = []
    for first, last, group in _groups(positions, edits):
        start = positions.starts[first - 1]
        before = positions.text(first, last)
        moved = [Edit(e.start - start, e.end - start, e.replacement) for e in group]
        old, new = _lines(before), _lines(apply_edits(before, moved))
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        hunk = Hunk(first + head, tuple(old[head : len(old) - tail]), tuple(new[head : len(new) - tail]))
        if hunk.old or hunk.new:
            found.append(hunk)
    return found


def _groups(positions: Positions, edits: Sequence[Edit]) -> Iterator[tuple[int, int, list[Edit]]]:
    """Edits of the same or neighbouring lines, with the first and the last line they touch."""
    group: list[Edit] = []
    first = last = 0
    for edit in sorted(edits):
        low, high = positions.line(edit.start), positions.line(edit.end)
        if group and low > last + 1:
            yield first, last, group
            group = []
        if not group:
            first = last = low
        group.append(edit)
        last = max(last, high)
    if group:
        yield first, last, group


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def unified_diff(path: str, text: str, edits: Sequence[Edit], context: int = 3) -> str:
    """The edits as a patch that `git apply` takes; "" when nothing changes. Raises `EditError`."""
    positions = Positions(text)
    changes = hunks(positions, edits)
    if not changes:
        return ""
    total = len(positions.starts) - (positions.starts[-1] == len(positions.data))
    out = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    shift = 0
    for run in _runs(changes, 2 * context):
        first = max(1, run[0].start - context)
        last = min(total, run[-1].start + len(run[-1].old) - 1 + context)
        body: list[str] = []
        at = first
        for hunk in run:
            body += [f" {line}" for line in _between(positions, at, hunk.start - 1)]
            body += [f"-{line}" for line in hunk.old] + [f"+{line}" for line in hunk.new]
            at = hunk.start + len(hunk.old)
        body += [f" {line}" for line in _between(positions, at, last)]
        grown = sum(len(h.new) - len(h.old) for h in run)
        size = last - first + 1
        out.append(f"@@ -{_range(first, size)} +{_range(first + shift, size + grown)} @@\n")
        out += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in body]
        shift += grown
    return "".join(out)


def _runs(changes: Sequence[Hunk], gap: int) -> list[list[Hunk]]:
    runs: list[list[Hunk]] = []
    for hunk in changes:
        before = runs[-1][-1] if runs else None
        if before is not None and hunk.start - (before.start + len(before.old)) <= gap:
            runs[-1].append(hunk)
        else:
            runs.append([hunk])
    return runs


def _between(positions: Positions, first: int, last: int) -> list[str]:
    return _lines(positions.text(first, last)) if first <= last else []


def _range(start: int, size: int) -> str:
    if size == 0:
        start -= 1  # an empty range stands after the line before it
    return str(start) if size == 1 else f"{start},{size}"


def source_of(review: Review, finding: Finding) -> str | None:
    """The head text that the fix of the finding edits, when it is at hand."""
    return (review.sources or {}).get(finding.path) if finding.fix is not None else None


def fix_hunks(review: Review, finding: Finding) -> list[Hunk]:
    """The lines that the fix changes; empty without a fix, or without the text it edits."""
    text = source_of(review, finding)
    if text is None or finding.fix is None:
        return []
    try:
        return hunks(Positions(text), finding.fix.edits)
    except (EditError, UnicodeError):  # also an edit that cuts a character in two
        return []


def fix_diff(review: Review, finding: Finding, context: int = 3) -> str:
    """The fix as a patch; "" without a fix, or without the text it edits."""
    text = source_of(review, finding)
    if text is None or finding.fix is None:
        return ""
    try:
        return unified_diff(finding.path, text, finding.fix.edits, context)
    except (EditError, UnicodeError):  # also an edit that cuts a character in two
        return ""
