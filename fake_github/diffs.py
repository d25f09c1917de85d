"""git's diff output as files, hunks and positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Side = Literal["LEFT", "RIGHT"]
_STATUS = {"A": "added", "D": "removed", "M": "modified", "R": "renamed", "C": "copied", "T": "changed"}
_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Row:
    """One line of a hunk. A context line has both numbers."""

    left: int | None
    right: int | None
    position: int  # lines below the file's first hunk header
    hunk: int  # which hunk of the file, from 0


@dataclass(frozen=True)
class FileDiff:
    path: str
    previous_path: str | None
    status: str
    blob_sha: str  # of the head; of the base when removed
    additions: int
    deletions: int
    patch: str | None  # from the first @@, no trailing newline; None without hunks

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        rows: list[Row] = []
        left = right = 0
        hunk = -1
        for position, text in enumerate((self.patch or "").split("\n") if self.patch else ()):
            header = _HEADER.match(text)
            if header:
                left, right = int(header[1]), int(header[3])
                hunk += 1
            elif text.startswith("\\"):
                continue
            elif text.startswith("-"):
                rows.append(Row(left, None, position, hunk))
                left += 1
            elif text.startswith("+"):
                rows.append(Row(None, right, position, hunk))
                right += 1
            else:
                rows.append(Row(left, right, position, hunk))
                left, right = left + 1, right + 1
        return tuple(rows)

    @cached_property
    def _index(self) -> dict[tuple[str, int], Row]:
        index: dict[tuple[str, int], Row] = {}
        for row in self.rows:
            if row.left is not None:
                index["LEFT", row.left] = row
            if row.right is not None:
                index["RIGHT", row.right] = row
        return index

    def row(self, side: str, line: int) -> Row | None:
        """Where that line stands in the diff; None when the diff does not show it."""
        return self._index.get((side, line))

    def at_position(self, position: int) -> Row | None:
        return next((row for row in self.rows if row.position == position), None)

    def hunk_until(self, row: Row) -> str:
        """The text of the hunk from its header to that line: a comment's `diff_hunk`."""
        lines = (self.patch or "").split("\n")
        start = max(i for i in range(row.position + 1) if _HEADER.match(lines[i]))
        return "\n".join(lines[start : row.position + 1])

    @cached_property
    def moves(self) -> tuple[tuple[int, int, int], ...]:
        """(first old line, old lines, new lines) of each hunk; exact in a diff without context."""
        found = []
        for line in (self.patch or "").split("\n"):
            header = _HEADER.match(line)
            if header:
                old = 1 if header[2] is None else int(header[2])
                new = 1 if header[4] is None else int(header[4])
                # An empty range is named by the line before it.
                found.append((int(header[1]) + (old == 0), old, new))
        return tuple(found)

    def moved(self, start: int, end: int) -> int | None:
        """How far the untouched old lines `start` to `end` moved; None when one changed (no-context diff)."""
        shift = 0
        for first, old, new in self.moves:
            if first > end:
                break
            if old and first + old > start:
                return None
            if not old and start < first <= end:
                return None
            shift += new - old
        return shift


def parse_diff(data: bytes) -> tuple[FileDiff, ...]:
    """Reads `git diff-tree -z --raw -p`."""
    entries = []
    position = 0
    while data[position : position + 1] == b":":
        meta, rest = data[position:].split(b"\0", 1)
        fields = meta[1:].decode().split()
        names, letter = [], fields[4][0]
        for _ in range(2 if letter in "RC" else 1):
            name, rest = rest.split(b"\0", 1)
            names.append(name.decode("utf-8", "replace"))
        position = len(data) - len(rest)
        entries.append((letter, fields[2], fields[3], names))
    text = data[position:].lstrip(b"\0").decode("utf-8", "replace")
    chunks = re.split(r"^(?=diff --git )", text, flags=re.M)[1:]
    files = []
    at = 0
    for letter, old, new, names in entries:
        used = 2 if letter == "T" else 1
        chunk = "".join(chunks[at : at + used])
        at += used
        start = re.search(r"^@@ ", chunk, flags=re.M)
        patch = chunk[start.start() :].removesuffix("\n") if start else None
        lines = patch.split("\n") if patch else []
        files.append(
            FileDiff(
                path=names[-1],
                previous_path=names[0] if len(names) == 2 else None,
                status=_STATUS[letter],
                blob_sha=old if letter == "D" else new,
                additions=sum(line.startswith("+") for line in lines),
                deletions=sum(line.startswith("-") for line in lines),
                patch=patch,
            )
        )
    return tuple(files)
