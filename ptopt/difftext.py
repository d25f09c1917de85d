"""The text of a unified diff, file by file: names, status, hunks.

unidiff parses the hunks. File headers are read here, because unidiff takes the names from the `diff --git`
line, which is ambiguous for paths with spaces and for diffs without prefixes, and leaves them quoted.

Lines are git's lines: they end at a line feed and nowhere else. The text is latin-1, one character per byte,
so that no encoding, right or wrong, can shift a line number.
"""

from __future__ import annotations

import enum
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unidiff.patch import Hunk, PatchedFile


class ChangeError(ValueError):
    """The diff cannot be understood. The text says what is wrong, where, and what to do."""


class Status(str, enum.Enum):
    """What happened to a file. A copy counts as added."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the diff as its header names it."""

    line: int  # of the diff, where the file begins
    path: str
    old_path: str | None
    status: Status
    hunks: list[Hunk]
    binary: bool = False
    mode: str = ""


_GIT_HEADER = "diff --git "
_COMBINED = ("diff --cc ", "diff --combined ", "@@@ ")
_FIELDS = (
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "new file mode ",
    "deleted file mode ",
    "new mode ",
    "index ",
    "--- ",
    "+++ ",
    "Binary files ",
)
_NULL = "/dev/null"
_PREFIXED = re.compile(r"[abciow12]/")  # git's own, with diff.mnemonicPrefix and with --no-index
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


def read_diff(diff: bytes) -> Iterator[Entry]:
    """The files of a diff, git's or plain `diff -u`, in its order. Raises ChangeError."""
    lines = io.StringIO(diff.decode("latin-1"), newline="\n").readlines()
    for number, line in enumerate(lines, 1):
        if line.startswith(_COMBINED):
            raise ChangeError(
                f"line {number} of the diff: this is a combined diff of a merge, which has no single base; "
                "make one against the base branch instead, such as `git diff main...HEAD`"
            )
        if line.startswith("\\"):  # GNU diff translates this marker; unidiff knows it in English only
            lines[number - 1] = "\\ No newline at end of file\n"
    return _entries(lines)


def _entries(lines: list[str]) -> Iterator[Entry]:
    starts = [number for number, line in enumerate(lines) if line.startswith(_GIT_HEADER)]
    preamble = starts[0] if starts else len(lines)
    found = bool(starts)
    # Before the first `diff --git` line stands a mail header, a commit message, or a plain diff.
    for number in range(preamble):
        if _starts_plain(lines, number) or lines[number].startswith("Binary files "):
            found = True
            yield from _plain_entries(lines[number:preamble], number)
            break
    if not found and any(line.strip() for line in lines):
        raise ChangeError(
            "this is not a unified diff: it has neither a `diff --git` line nor a `---`, `+++`, `@@` header; "
            "make one with `git diff main...HEAD` or `diff -u`"
        )
    for start, end in pairwise([*starts, len(lines)]):
        yield from _git_entries(lines[start:end], start)


def _starts_plain(lines: list[str], index: int) -> bool:
    prefixes = [line[:3] for line in lines[index : index + 3]]
    return prefixes == ["---", "+++", "@@ "]


def _git_entries(lines: list[str], offset: int) -> Iterator[Entry]:
    """The file of one `diff --git` section, and any plain diff that follows it."""
    body = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    fields: dict[str, str] = {}
    binary = False
    for line in lines[1:body]:
        if line.startswith("GIT binary patch"):
            binary = True
            break
        for field in _FIELDS:
            if line.startswith(field):
                fields.setdefault(field, line[len(field) :].rstrip("\r\n"))
                break
    place = offset + 1
    if ("+++ " in fields) != (body < len(lines)):
        raise ChangeError(f"line {place} of the diff: the diff of this file is cut or damaged; make it again")
    source, target = (_name(fields.get(field, _NULL), place) for field in ("--- ", "+++ "))
    names = _git_names(lines[0][len(_GIT_HEADER) :].rstrip("\r\n"), place)
    old: str | None = None
    status = Status.MODIFIED
    if "rename to " in fields or "copy to " in fields:
        kind = "rename" if "rename to " in fields else "copy"
        status = Status.RENAMED if kind == "rename" else Status.ADDED
        old = _normal(_unquote(fields.get(f"{kind} from ", ""), place)) or None
        path = _unquote(fields[f"{kind} to "], place)
    elif names is not None:
        path = _without_prefix(*names)
    elif target != _NULL:
        path = _without_prefix(source, target)
    elif "Binary files " in fields:
        path = _binary_path(fields["Binary files "], place)
    else:
        path = lines[0][len(_GIT_HEADER) :].strip()
    if target != _NULL and not target.endswith(path):
        raise ChangeError(
            f"line {place} of the diff: its headers name two files, {show(path)} and {show(target)}; "
            "make it again"
        )
    if "deleted file mode " in fields or (target == _NULL and body < len(lines)):
        status = Status.DELETED
    elif "new file mode " in fields:
        status = Status.ADDED
    index_mode = fields.get("index ", "").partition(" ")[2]
    mode = fields.get("new file mode ") or fields.get("new mode ") or index_mode
    binary = binary or "Binary files " in fields
    # A fixed name: what unidiff reads from here on are hunks.
    parsed = _parsed(["--- a\n", "+++ b\n", *lines[body:]], offset + body - 2) if body < len(lines) else []
    yield Entry(place, _normal(path), old, status, list(parsed[0]) if parsed else [], binary, mode)
    for file in parsed[1:]:
        yield _plain_entry(file, offset + body - 2)


def _plain_entries(lines: list[str], offset: int) -> Iterator[Entry]:
    for number, line in enumerate(lines):
        if line.startswith("Binary files "):
            place = offset + number + 1
            path = _binary_path(line[len("Binary files ") :].rstrip("\r\n"), place)
            yield Entry(place, _normal(path), None, Status.MODIFIED, [], binary=True)
    for file in _parsed(lines, offset):
        yield _plain_entry(file, offset)


def _plain_entry(file: PatchedFile, offset: int) -> Entry:
    place = offset + (file.diff_line_no or 1)
    if not file:
        raise ChangeError(f"line {place} of the diff: the file has no hunks: the diff is cut; make it again")
    source, target = (_name(name, place) for name in (file.source_file, file.target_file))
    status = (
        Status.ADDED if file.is_added_file else Status.DELETED if file.is_removed_file else Status.MODIFIED
    )
    return Entry(place, _normal(_without_prefix(source, target)), None, status, list(file))


def _parsed(lines: list[str], offset: int) -> list[PatchedFile]:
    """What unidiff reads, checked for what it lets pass: bad hunk headers, lines after a hunk's end."""
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    # unidiff matches this line in quadratic time, and a hostile one may be long. No line of a hunk starts so.
    lines = ["\n" if line.startswith("Binary file") else line for line in lines]
    try:
        parsed = PatchSet(lines)
    except (UnidiffParseError, ValueError) as error:
        raise ChangeError(
            f"the file that starts near line {offset + 1} of the diff is damaged: {show(str(error))}; "
            "make it again"
        ) from None
    hunks = list(chain.from_iterable(parsed))
    if len(hunks) != sum(line.startswith("@@") for line in lines):
        raise ChangeError(
            f"a hunk header after line {offset + 1} of the diff is damaged; make the diff again"
        )
    for hunk in hunks:
        end = next((line.diff_line_no for line in reversed(hunk) if line.diff_line_no), len(lines))
        while end < len(lines) and lines[end].startswith("\\"):
            end += 1
        if end < len(lines) and lines[end][0] in " +-" and not _may_follow(lines, end):
            raise ChangeError(
                f"line {offset + end + 1} of the diff: the hunk is longer than its header says; "
                "make the diff again"
            )
    return parsed


def _may_follow(lines: list[str], index: int) -> bool:
    return lines[index].rstrip() == "--" or _starts_plain(lines, index)  # the end of a mail, or the next file


# --- names


def _git_names(text: str, place: int) -> tuple[str, str] | None:
    """The two names of a `diff --git` line, where they are one path; None when it is ambiguous."""
    if text.startswith('"'):
        quoted = re.fullmatch(r'("(?:[^"\\]|\\.)*") (.*)', text, re.DOTALL)
        if quoted is None:
            return None
        names = quoted[1], quoted[2]
    elif text.endswith('"'):
        source, _, target = text.partition(' "')
        names = source, '"' + target
    else:
        middle = len(text) // 2
        names = text[:middle], text[middle + 1 :]
        if text[middle : middle + 1] != " ":
            return None
    source, target = (_unquote(name, place) for name in names)
    same = source == target or (_differ_in_prefix(source, target) and source[2:] == target[2:])
    return (source, target) if same else None


def _without_prefix(source: str, target: str) -> str:
    path = source if target == _NULL else target
    if _NULL in (source, target):
        return path[2:] if _PREFIXED.match(path) else path
    return path[2:] if _differ_in_prefix(source, target) else path


def _differ_in_prefix(source: str, target: str) -> bool:
    return bool(_PREFIXED.match(source) and _PREFIXED.match(target)) and source[0] != target[0]


def _binary_path(text: str, place: int) -> str:
    """The path in `A and B differ`: two names of one length around "and", or what follows the last one."""
    text = text.removesuffix(" differ")
    middle = (len(text) - len(" and ")) // 2
    names = text[:middle], text[middle + len(" and ") :]
    if text[middle : middle + len(" and ")] != " and ":
        source, _, target = text.rpartition(" and ")
        names = source, target
    return _without_prefix(_name(names[0], place), _name(names[1], place))


def _name(text: str, place: int) -> str:
    """The name in a `---` or `+++` line: a tab ends it, a timestamp may follow."""
    return _unquote(text.partition("\t")[0].rstrip("\r\n"), place)


def _unquote(text: str, place: int) -> str:
    """Undo git's C-style quoting. Bytes that are not UTF-8 become surrogates, as in the names `os` gives."""
    raw = text.encode("latin-1")
    if text.startswith('"'):
        if not re.fullmatch(r'"(?:[^"\\]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*"', text):
            raise ChangeError(
                f"line {place} of the diff: the quoted name {show(text)} is damaged; make the diff again"
            )
        raw = bytes(_unescape(text[1:-1]))
    return raw.decode("utf-8", "surrogateescape")


def _unescape(text: str) -> Iterable[int]:
    for match in re.finditer(r"\\([0-7]{3})|\\(.)|([^\\])", text, re.DOTALL):
        octal, escape, plain = match.groups()
        yield int(octal, 8) if octal else _ESCAPES[escape] if escape else ord(plain)


def _normal(path: str) -> str:
    return str(PurePosixPath(path)) if path else ""


def show(text: str) -> str:
    """Text of a diff in an error message: one line, no control characters, not too long."""
    return ascii(text if len(text) <= 100 else text[:100] + "…")
