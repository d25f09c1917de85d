"""Comments that silence findings: `# ptopt: ignore[...]`, `# ptopt: ignore-file[...]` and `# noqa: PTO101`.

Between the brackets stand rule ids, rule names or families; without brackets every rule is meant. A comment
that stands alone on its line counts for the statement after it.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_FILE_COMMENT_LAST_LINE = 20

# An opening bracket that is never closed leaves group 3 unset: such a comment silences nothing.
_OWN = re.compile(r"#\s*ptopt:\s*ignore(-file)?(?![\w-])(\[(?:([^\]]*)\])?)?", re.IGNORECASE)
_NOQA = re.compile(  # within one line
    r"#[^\S\n]*noqa(?![\w-])(?:[^\S\n]*:[^\S\n]*([A-Z]+[0-9]+(?:(?:,|[^\S\n])+[A-Z]+[0-9]+)*))?",
    re.IGNORECASE,
)
_CODE = re.compile(r"[\w-]+", re.ASCII)
_OUR_CODE = re.compile(r"PTO\d{3}", re.IGNORECASE)

_LAYOUT = frozenset((tokenize.NL, tokenize.INDENT, tokenize.DEDENT))


Use = tuple[int, str]
"""A part of a suppression comment: the comment's place among those of its file, and the code, "" for every rule."""


@dataclass(slots=True)
class _Comment:
    line: int  # where it stands
    start: int  # the lines it counts for
    end: int
    codes: tuple[str, ...]  # as written
    every_rule: bool
    reported: bool = True  # whether it is reported when it silences nothing
    reason: str = ""  # what stands behind the codes

    def matching(self, keys: frozenset[str], start: int, end: int) -> list[str]:
        if max(self.start, start) > min(self.end, end):
            return []
        return [code for code in self.codes if code.lower() in keys] + [""] * self.every_rule

    def unused(self, used: AbstractSet[str]) -> tuple[str, ...] | None:
        """The codes that silenced nothing, () for a comment without codes; None when all of it is in use."""
        left = tuple(code for code in self.codes if code not in used)
        return left if left or (not self.codes and not used) else None


class Suppressions:
    """The suppression comments of one file."""

    def __init__(self, comments: Sequence[_Comment] = ()) -> None:
        self._comments = tuple(comments)

    def matching(self, keys: tuple[str, str, str], start: int, end: int) -> frozenset[Use]:
        """What silences a rule (id, name, family) on the lines `start` to `end`, both included; empty: nothing does.

        Two comments that silence the same are both part of the answer, so that both count as used.
        """
        lower = frozenset(key.lower() for key in keys)
        return frozenset(
            (at, code)
            for at, comment in enumerate(self._comments)
            for code in comment.matching(lower, start, end)
        )

    def reason(self, used: AbstractSet[Use]) -> str:
        """What the first of these comments that gives a reason gives; "" where none does."""
        reasons = (self._comments[at].reason for at, _ in sorted(used) if at < len(self._comments))
        return next(filter(None, reasons), "")

    def unused(self, used: AbstractSet[Use]) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """(line, codes that silenced nothing) of each such comment; no codes where it has none."""
        return tuple(
            (comment.line, codes)
            for at, comment in enumerate(self._comments)
            if comment.reported and (codes := comment.unused({c for n, c in used if n == at})) is not None
        )


def find_suppressions(text: str) -> Suppressions:
    """Find the suppression comments of a Python file; none where it cannot be split into tokens."""
    if not _may_silence(text):
        return Suppressions()
    # The line ends of `ast`, so that lines have the same numbers here and there.
    source = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    try:
        return Suppressions(_comments(source))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return Suppressions()


def find_in_config(text: str) -> Suppressions:
    """Find the suppression comments of a YAML file or a Dockerfile.

    One that stands alone on its line counts for the next line that is neither empty nor a comment.
    """
    if not _may_silence(text):
        return Suppressions()
    found: list[_Comment] = []
    waiting: list[_Comment] = []
    for number, line in enumerate(text.split("\n"), start=1):
        code, _, _ = line.partition("#")
        if (match := _OWN.search(line)) and (match.start() == 0 or line[match.start() - 1].isspace()):
            own = _own(match, number)
            found.append(own)
            if not match[1] and not code.strip():
                waiting.append(own)
        if code.strip():
            for comment in waiting:
                comment.end = number
            waiting.clear()
    return Suppressions(found)


def add_to_config(text: str, places: Iterable[tuple[int, str]], reason: str) -> str:
    """The text of a YAML file or a Dockerfile with a comment above each of the lines."""
    wanted: defaultdict[int, set[str]] = defaultdict(set)
    for line, rule in places:
        wanted[line].add(rule)
    lines = text.split("\n")
    for line, rules in sorted(wanted.items(), reverse=True):
        _insert_comment(lines, line, rules, reason)
    return "\n".join(lines)


def _insert_comment(lines: list[str], line: int, rules: Iterable[str], reason: str) -> None:
    code = lines[line - 1]
    end = "\r" if code.endswith("\r") else ""
    indentation = code[: len(code) - len(code.lstrip())]
    comment = f"# ptopt: ignore[{', '.join(sorted(rules))}] {reason}".rstrip()
    lines.insert(line - 1, f"{indentation}{comment}{end}")


def add_suppressions(text: str, places: Iterable[tuple[int, str]], reason: str) -> str:
    """The text with a comment above each statement that holds one of the places (line, rule name).

    `reason` is one line, which may be empty. A text that cannot be split into tokens comes back as it is.
    """
    lines = text.split("\n")
    wanted: defaultdict[int, set[str]] = defaultdict(set)
    try:
        starts = _statement_starts(text)
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text
    for line, rule in places:
        wanted[starts[bisect_right(starts, line) - 1] if starts and starts[0] <= line else line].add(rule)
    for line, rules in sorted(wanted.items(), reverse=True):
        _insert_comment(lines, line, rules, reason)
    return "\n".join(lines)


def _statement_starts(text: str) -> list[int]:
    """The first line of each logical line."""
    starts: list[int] = []
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(text.replace("\r\n", "\n")).readline):
        if token.type == tokenize.NEWLINE:
            begins = True
        elif begins and token.type not in _LAYOUT and token.type != tokenize.COMMENT:
            starts.append(token.start[0])
            begins = False
    return starts


def _may_silence(text: str) -> bool:
    """Is there anything that looks like a comment for us? Most are of other tools, and splitting into tokens is slow."""
    lower = text.lower()
    if "ptopt:" in lower and _OWN.search(text):
        return True
    return "noqa" in lower and any(
        match[1] is None or _OUR_CODE.search(match[1]) for match in _NOQA.finditer(text)
    )


def _comments(source: str) -> list[_Comment]:
    found: list[_Comment] = []
    waiting: list[_Comment] = []  # alone on their line, until the statement they count for has ended
    code_line = 0  # the last line with code on it
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if match := _OWN.search(token.string):
                own = _own(match, line)
                found.append(own)
                if not match[1] and line != code_line:
                    waiting.append(own)
            if (match := _NOQA.search(token.string)) and (noqa := _noqa(match, line)):
                found.append(noqa)
        elif token.type == tokenize.NEWLINE:
            for comment in waiting:
                comment.end = line
            waiting.clear()
        elif token.type not in _LAYOUT:
            code_line = token.end[0]
    return found


def _own(match: re.Match[str], line: int) -> _Comment:
    of_file, brackets, names = match.groups()
    codes = tuple(_CODE.findall(names or ""))
    reason = _reason(match)
    if not of_file:
        return _Comment(line, line, line, codes, every_rule=not brackets, reason=reason)
    last = sys.maxsize if line <= _FILE_COMMENT_LAST_LINE else 0  # one that comes late counts for no line
    return _Comment(line, 1, last, codes, every_rule=not brackets, reason=reason)


def _reason(match: re.Match[str]) -> str:
    """What follows in the comment, up to another one on the line."""
    rest, _, _ = match.string[match.end() :].partition("#")
    return rest.strip().lstrip("-:, ").strip()


def _noqa(match: re.Match[str], line: int) -> _Comment | None:
    if match[1] is None:
        return _Comment(line, line, line, (), every_rule=True, reported=False, reason=_reason(match))
    codes = tuple(code for code in _CODE.findall(match[1]) if _OUR_CODE.fullmatch(code))
    return _Comment(line, line, line, codes, every_rule=False, reason=_reason(match)) if codes else None
