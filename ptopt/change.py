"""A change under review: the diff, and the whole head file of each file it touches.

Text in, values out: the head files come through a function, so that nothing here knows of git or a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath, PureWindowsPath

from ptopt.difftext import ChangeError, Entry, Status, read_diff, show
from ptopt.findings import NotReviewed, Span

__all__ = ["Change", "ChangeError", "ChangedFile", "Hunk", "Status", "parse_diff", "whole_file"]

_SPECIAL_MODES = {"120000": "a symbolic link", "160000": "a submodule"}
HEAD_MISSING = "the head version of the file is missing"
MISMATCH = "the tree does not match the diff"
_MOST_LINES = 10**9  # a hunk that starts beyond is no hunk of a file


@dataclass(frozen=True, slots=True)
class Hunk:
    """The head side of a hunk: `count` lines from line `start`. Comments can stand on these lines only."""

    start: int
    count: int

    def lines(self) -> range:
        return range(self.start, self.start + self.count)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of a change. `hunks` are sorted, do not overlap, and each has at least one line."""

    path: str
    old_path: str | None  # where it was renamed or copied from
    status: Status
    hunks: tuple[Hunk, ...]
    added: frozenset[int]  # head line numbers that the change wrote
    head: bytes | None  # the whole head file; None when it is deleted, binary or unavailable
    removed: tuple[
        tuple[int, str], ...
    ] = ()  # what the change took out: (head line before which it stood, text)

    def anchor(self, start: int, end: int) -> Span | None:
        """Where a comment on head lines `start` to `end` may stand: inside one hunk, or nowhere.

        A range that reaches beyond a hunk is clipped to the hunk with the first added line of the range, or
        else to the first hunk it touches.
        """
        first = None
        for hunk in self.hunks:
            low, high = max(start, hunk.start), min(end, hunk.start + hunk.count - 1)
            if low > high:
                continue
            if any(line in self.added for line in range(low, high + 1)):
                return Span(low, high)
            first = first or Span(low, high)
        return first


@dataclass(frozen=True, slots=True)
class Change:
    """The files that can be reviewed, and those that cannot, each sorted by path.

    Deletions, pure renames and pure mode changes are in neither: they bring no line to review. `around` holds other
    files of the repository at the head, by path: nothing is said of them, but they answer questions about the change.
    `compared` names both sides, for people, where git gave the change.
    """

    files: tuple[ChangedFile, ...]
    not_reviewed: tuple[NotReviewed, ...]
    around: Mapping[str, bytes] = field(default_factory=dict)
    compared: str = ""


def parse_diff(diff: bytes, heads: Callable[[str], bytes | None]) -> Change:
    """Read a unified diff (git's, or plain `diff -u`); `heads` gives the head content of a path, or None.

    `heads` is asked once per file with hunks, and never for an absolute path or one that leaves the tree.
    Raises ChangeError for what is not a unified diff, is damaged, is combined, or is a series of patches.
    """
    files: list[ChangedFile] = []
    not_reviewed: list[NotReviewed] = []
    seen: set[str] = set()
    for entry in read_diff(diff):
        if entry.status is Status.DELETED or not (entry.binary or entry.hunks):
            continue
        if entry.path in seen:
            raise ChangeError(
                f"line {entry.line} of the diff: {show(entry.path)} comes a second time, so this is a series "
                "of patches; give one diff of the whole change, such as `git diff main...HEAD`"
            )
        seen.add(entry.path)
        outcome = _look(entry, heads)
        if isinstance(outcome, NotReviewed):
            not_reviewed.append(outcome)
        elif outcome is not None:
            files.append(outcome)
    return Change(tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(not_reviewed)))


def whole_file(path: str, head: bytes) -> ChangedFile:
    """A file taken as new: every line counts as added. An empty file has no hunks."""
    count = head.count(b"\n") + (not head.endswith(b"\n")) if head else 0
    hunks = (Hunk(1, count),) if count else ()
    return ChangedFile(path, None, Status.ADDED, hunks, frozenset(range(1, count + 1)), head)


def _look(entry: Entry, heads: Callable[[str], bytes | None]) -> ChangedFile | NotReviewed | None:
    hunks = []
    after = 1  # the first line that the next hunk may hold
    for parsed in entry.hunks:
        if not parsed.target_length:
            continue
        if not after <= parsed.target_start < _MOST_LINES:
            raise ChangeError(
                f"the diff of {show(entry.path)} is damaged: a hunk that must start at line {after} or later "
                f"starts at line {show(str(parsed.target_start))}; make the diff again"
            )
        after = parsed.target_start + parsed.target_length
        hunks.append(Hunk(parsed.target_start, parsed.target_length))
    if not hunks and not entry.binary:
        return None
    if not _stays_inside(entry.path):
        return NotReviewed(_printable(entry.path), "the path is absolute, leaves the tree, or is no text")
    if entry.mode in _SPECIAL_MODES:
        return NotReviewed(entry.path, f"{_SPECIAL_MODES[entry.mode]}, not a file")
    if entry.binary:
        return NotReviewed(entry.path, "binary, or marked as binary in .gitattributes")
    head = heads(entry.path)
    if head is None:
        return NotReviewed(entry.path, HEAD_MISSING)
    text = _split(head)
    added = set()
    for line in chain.from_iterable(entry.hunks):
        number = line.target_line_no
        if number is None:
            continue
        if number > len(text) or not _same(line.value, text[number - 1], exact=line.is_added):
            reason = f"{MISMATCH}: line {number} of the file is not the line in the diff"
            return NotReviewed(entry.path, reason)
        if line.is_added:
            added.add(number)
    return ChangedFile(
        entry.path, entry.old_path, entry.status, tuple(hunks), frozenset(added), head, tuple(_removed(entry))
    )


def _removed(entry: Entry) -> Iterator[tuple[int, str]]:
    """The lines that the change took out, each with the head line before which it stood."""
    for hunk in entry.hunks:
        following = hunk.target_start if hunk.target_length else hunk.target_start + 1
        for line in hunk:
            if line.is_removed:
                yield following, line.value.rstrip("\r\n")
            elif line.target_line_no is not None:
                following = line.target_line_no + 1


def _same(in_diff: str, found: str, *, exact: bool) -> bool:
    """Line ends may differ (core.autocrlf), and white space in the context of a diff made with `-w`."""
    in_diff, found = in_diff.removesuffix("\n").removesuffix("\r"), found.removesuffix("\r")
    return in_diff == found or (not exact and in_diff.split() == found.split())


def _split(head: bytes) -> list[str]:
    lines = head.decode("latin-1").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _stays_inside(path: str) -> bool:
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    parts = {part.casefold() for part in (*posix.parts, *windows.parts)}
    if posix.is_absolute() or windows.anchor or ".." in parts or ".git" in parts or not parts:
        return False
    return path == _printable(path) and "\0" not in path


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
