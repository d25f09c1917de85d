"""Fixes in the width of the project: a line that a fix makes too long is broken in the brackets, as formatters do."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
import tokenize
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from posixpath import commonprefix

from ptopt.findings import Edit, Fix
from ptopt.layout import brackets, laid_out
from ptopt.source.file import SourceFile
from ptopt.verify import EditError, apply_edits

_AT_LEAST = 88  # where no tool is configured, lines may be as long as this, and as the longest of the file
_DEEPEST = 3  # brackets within brackets that are broken
_LONGEST = 2_000  # characters of a line; what is longer was not written by hand


def wrapped(file: SourceFile, fix: Fix, after: SourceFile | None = None) -> Fix:
    """The fix with its brackets and its long lines as formatters have them; the fix itself where that is not needed, or would
    change what the code does. `after` is the file with the fix, where it was made already.
    """
    limit = _limit(file)
    text = file.text
    try:
        plain = apply_edits(text, fix.edits)
        tree = after.tree if after is not None and after.text == plain else ast.parse(plain)
        spread = laid_out(plain, tree, _changed(text, fix.edits), limit)
        new = _within(spread, set(text.split("\n")), limit)
        if new == plain or ast.dump(ast.parse(new)) != ast.dump(tree):
            return fix
    except (EditError, SyntaxError, ValueError, RecursionError):
        return fix
    return dataclasses.replace(fix, edits=tuple(_line_edits(text, new)))


def _changed(text: str, edits: Sequence[Edit]) -> Iterator[tuple[int, int]]:
    """Where the replacements stand in the edited text, in characters."""
    data = text.encode("utf-8", "surrogatepass")
    done, at = 0, 0
    for edit in sorted(edits):
        at += len(data[done : edit.start].decode("utf-8", "surrogatepass"))
        yield at, at + len(edit.replacement)
        at, done = at + len(edit.replacement), edit.end


def _line_edits(old: str, new: str) -> Iterator[Edit]:
    """What makes the new text of the old one, whole lines at a time."""
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    same = len(commonprefix([before, after]))
    behind = len(commonprefix([before[same:][::-1], after[same:][::-1]]))
    ends = [0]
    for line in before:
        ends.append(ends[-1] + len(line.encode("utf-8", "surrogatepass")))
    middle = before[same : len(before) - behind], after[same : len(after) - behind]
    matcher = difflib.SequenceMatcher(None, *middle, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield Edit(ends[same + a], ends[same + b], "".join(after[same + c : same + d]))


def _limit(file: SourceFile) -> int:
    return file.facts.line_length or file.once(_longest_line)


def _longest_line(file: SourceFile) -> int:
    return max(_AT_LEAST, max(map(len, file.text.split("\n"))))


def _within(text: str, before: Collection[str], limit: int) -> str:
    """The text with its long lines broken, but for those that were there before."""
    lines: list[str] = []
    for line in text.split("\n"):
        broken = None
        if limit < len(line.rstrip("\r")) <= _LONGEST and line not in before:
            broken = _broken(line, limit, 0)
        lines += broken or [line]
    return "\n".join(lines)


def _broken(line: str, limit: int, depth: int, ending: str = "") -> list[str] | None:
    """The line in several, each within the limit, with `ending` at its end; None where that cannot be done."""
    if depth > _DEEPEST:
        return None
    indent = line[: len(line) - len(line.lstrip())]
    inner = indent + ("\t" if "\t" in indent else "    ")
    for start, end, commas in reversed(_brackets(line)):
        head, tail = line[: start + 1], line[end:] + ending
        content = line[start + 1 : end].strip()
        if not content or len(head) > limit or len(indent + tail) > limit:
            continue
        if len(inner + content) <= limit:
            return [head, inner + content, indent + tail]
        cuts = [start, *commas, end]
        parts = [inner + line[a + 1 : b].strip() for a, b in pairwise(cuts)]
        if not parts[-1].strip():  # a trailing comma is there
            parts.pop()
        comma = "," if commas else ""
        body: list[str] = []
        for part in parts:
            fits = len(part + comma) <= limit
            rows = [part + comma] if fits else _broken(part, limit, depth + 1, comma)
            if rows is None:
                break
            body += rows
        else:
            return [head, *body, indent + tail]
    return None


def _brackets(line: str) -> list[tuple[int, int, list[int]]]:
    """The outermost brackets of a line: where they open and close, and the commas between their parts."""
    stripped = line.lstrip()
    shift = len(line) - len(stripped)
    try:
        found = sorted(brackets(stripped, 0, len(stripped)), key=lambda each: each.start)
    except (tokenize.TokenError, SyntaxError):  # not a whole statement
        return []
    outermost: list[tuple[int, int, list[int]]] = []
    for each in found:
        start, end = each.start + shift, each.end + shift
        if not outermost or start > outermost[-1][1]:
            outermost.append((start, end, [at + shift for at in each.separators]))
    return outermost
