"""Fixes in the width of the project: a line that a fix makes too long is broken in the brackets, as formatters do."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ptopt.findings import Edit, Fix
from ptopt.source.file import SourceFile
from ptopt.verify import EditError, apply_edits

_AT_LEAST = 88  # where no tool is configured, lines may be as long as this, and as the longest of the file
_DEEPEST = 3  # brackets within brackets that are broken
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LONGEST = 2_000  # characters of a line; what is longer was not written by hand


def wrapped(file: SourceFile, fix: Fix) -> Fix:
    """The fix with its long lines broken; the fix itself where that is not needed, or would change what the code does."""
    limit = _limit(file)
    text = file.text
    try:
        edits = tuple(_edits(text, fix.edits, limit))
        if edits == fix.edits:
            return fix
        same = _dump(apply_edits(text, edits)) == _dump(apply_edits(text, fix.edits))
    except (EditError, SyntaxError, ValueError, RecursionError):
        return fix
    return dataclasses.replace(fix, edits=edits) if same else fix


def _limit(file: SourceFile) -> int:
    return file.facts.line_length or file.once(_longest_line)


def _longest_line(file: SourceFile) -> int:
    return max(_AT_LEAST, max(map(len, file.text.split("\n"))))


def _dump(text: str) -> str:
    return ast.dump(ast.parse(text))


def _edits(text: str, edits: Sequence[Edit], limit: int) -> Iterator[Edit]:
    """The edits; those of lines that become too long as one edit of these lines."""
    data = text.encode("utf-8", "surrogatepass")
    starts = [0, *(match.end() for match in re.finditer(rb"\n", data)), len(data) + 1]
    group: list[Edit] = []
    for edit in sorted(edits):
        if group and bisect_right(starts, edit.start) > bisect_right(starts, group[-1].end):
            yield from _of_lines(data, starts, group, limit)
            group = []
        group.append(edit)
    yield from _of_lines(data, starts, group, limit)


def _of_lines(data: bytes, starts: Sequence[int], edits: list[Edit], limit: int) -> list[Edit]:
    """Edits that touch lines in common."""
    start = starts[bisect_right(starts, edits[0].start) - 1]
    end = min(starts[bisect_right(starts, edits[-1].end)], len(data))
    old = data[start:end].decode("utf-8", "surrogatepass")
    new = apply_edits(old, [Edit(e.start - start, e.end - start, e.replacement) for e in edits])
    before = set(old.split("\n"))
    lines: list[str] = []
    for line in new.split("\n"):
        broken = None
        if limit < len(line.rstrip("\r")) <= _LONGEST and line not in before:
            broken = _broken(line, limit, 0)
        lines += broken or [line]
    whole = "\n".join(lines)
    return edits if whole == new else [Edit(start, end, whole)]


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
    """The outermost brackets of a line: where they open and close, and the commas directly in them."""
    found: list[tuple[int, int, list[int]]] = []
    stack: list[tuple[str, int]] = []
    commas: list[int] = []
    stripped = line.lstrip()
    shift = len(line) - len(stripped)
    try:
        for token in tokenize.generate_tokens(io.StringIO(stripped).readline):
            at = token.start[1] + shift
            if token.type != tokenize.OP:
                continue
            if token.string in _CLOSING:
                if not stack:
                    commas = []
                stack.append((token.string, at))
            elif token.string in _CLOSING.values():
                opening, start = stack.pop()
                if _CLOSING[opening] != token.string:
                    return []
                if not stack:
                    found.append((start, at, commas))
            elif token.string == "," and len(stack) == 1:
                commas.append(at)
    except (tokenize.TokenError, SyntaxError, IndexError):  # not a whole statement
        return []
    return found
