"""No fix is shown unchecked: apply it, parse the result, see that the rule is content, and nothing else moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ptopt.findings import Edit, Fix
from ptopt.rules.base import Problem, Rule
from ptopt.rules.engine import run
from ptopt.source import work
from ptopt.source.file import SourceFile
from ptopt.source.work import WorkLimitError
from ptopt.syntax import ParseError

_BYTES_PER_NODE = 8


class EditError(ValueError):
    """Edits that overlap, or reach beyond the text."""


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text after the edits. Offsets count in its UTF-8 form. Raises `EditError`."""
    data = text.encode("utf-8", "surrogatepass")
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits):
        if edit.start < position:
            raise EditError(f"edits overlap at byte {edit.start}")
        if edit.end > len(data):
            raise EditError(f"edit ends at byte {edit.end}, the text at byte {len(data)}")
        parts += [data[position : edit.start], edit.replacement.encode("utf-8", "surrogatepass")]
        position = edit.end
    parts.append(data[position:])
    return b"".join(parts).decode("utf-8", "surrogatepass")


def with_line_ends_of(text: str, edits: Sequence[Edit]) -> list[Edit]:
    r"""The edits with `\r\n` line ends where every line end of the text is one."""
    if "\n" not in text or text.count("\r\n") < text.count("\n"):
        return list(edits)
    return [
        dataclasses.replace(e, replacement=e.replacement.replace("\r\n", "\n").replace("\n", "\r\n"))
        for e in edits
    ]


def verified(file: SourceFile, rule: Rule, problem: Problem, before: int) -> Fix | None:
    """The problem's fix when it holds, else None. `before` is how many problems the rule sees in the file.

    It holds when the edited text parses, the rule sees fewer problems in it and would not edit the new code again, and
    the lines outside of the edits are untouched.
    """
    fix = problem.fix
    if fix is None or file.is_notebook:
        return None
    try:
        work.current().charge(len(file.data) // _BYTES_PER_NODE)  # for parsing it again
        text = apply_edits(file.text, fix.edits)
        after = SourceFile.parse(file.path, text.encode(file.parsed.encoding), file.facts)
    except (EditError, ParseError, UnicodeError, WorkLimitError):
        return None
    if not only_edited_lines_differ(file, fix.edits, text):
        return None
    failed: list[tuple[Rule, Exception]] = []
    left = [hit.problem for hit in run(after, [rule], failed)]
    holds = not failed and len(left) < before and not _edited_again(fix, left)
    return fix if holds else None


def only_edited_lines_differ(file: SourceFile, edits: Sequence[Edit], text: str) -> bool:
    old, new = file.text.split("\n"), text.split("\n")
    first = file.line_at(min(e.start for e in edits)) - 1
    last = file.line_at(max(e.end for e in edits))
    tail = len(old) - last
    return old[:first] == new[:first] and old[last:] == new[len(new) - tail :]


def _edited_again(fix: Fix, left: Sequence[Problem]) -> bool:
    """Would a second run edit the bytes that the fix just wrote?"""
    written: list[tuple[int, int]] = []
    shift = 0
    for edit in sorted(fix.edits):
        size = len(edit.replacement.encode("utf-8", "surrogatepass"))
        written.append((edit.start + shift, edit.start + shift + size))
        shift += size - (edit.end - edit.start)
    return any(
        edit.start < end and start < edit.end
        for problem in left
        if problem.fix is not None
        for edit in problem.fix.edits
        for start, end in written
    )
