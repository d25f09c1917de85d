"""Edits of a notebook's code, written into its JSON text: the strings of one cell change, every other byte stays."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ptopt.findings import Edit
from ptopt.source.decode import CodeCell, Parsed
from ptopt.source.notebook import SourceString, code_cells, parse_notebook, spread
from ptopt.syntax import ParseError
from ptopt.verify import EditError, apply_edits, with_line_ends_of

_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")  # what a writer of all of Unicode leaves as it is


class NotebookEditError(ValueError):
    """Edits that are not of the code of one cell, or of lines that are not Python."""


@dataclass(frozen=True, slots=True)
class _CellEdit:
    """Lines count from 0 in the cell; a column is in bytes. The line behind the last one stands for the end of the cell."""

    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str


def reviewed(data: bytes) -> Parsed:
    """The code of a notebook as a review of the whole file numbers it: with a line of the JSON text for each line."""
    parsed = parse_notebook(data)
    if not parsed.numbered_as_on_disk and (found := spread(data)) is not None:
        return parse_notebook(found[0])
    return parsed


def can_be_written(parsed: Parsed, edits: Sequence[Edit]) -> bool:
    """Can the edits of the code be written into the notebook?"""
    try:
        _in_cell(parsed, edits)
    except NotebookEditError:
        return False
    return True


def edited_notebook(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The notebook after edits of the code that `reviewed` gives. Raises `NotebookEditError`.

    The result was read again: its cells are those of `data`, but for the one that was edited.
    """
    number, cell_edits = _in_cell(reviewed(data), edits)
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    text = data.decode(encoding)
    cells = code_cells(text)
    strings = cells[number]
    code = _code(strings)
    try:
        here = with_line_ends_of(code, [_in_code(code, edit) for edit in cell_edits])
        wanted = {n: _code(each) for n, each in cells.items()} | {number: apply_edits(code, here)}
        after = _rewritten(text, strings, here)
        if {n: _code(each) for n, each in code_cells(after).items()} != wanted:
            raise NotebookEditError(f"the source of cell {number} cannot be written")
    except (EditError, ParseError, UnicodeError, json.JSONDecodeError) as error:
        raise NotebookEditError(str(error)) from None
    return after.encode(encoding)


def code_of_cells(data: bytes) -> dict[int, str]:
    """The code of each code cell, by the number of the cell, from 1."""
    return {number: _code(strings) for number, strings in code_cells(data.decode("utf-8-sig")).items()}


def _code(strings: Sequence[SourceString]) -> str:
    return "".join(string.text for string in strings)


# -- which cell ------------------------------------------------------------------------------------------------


def _in_cell(parsed: Parsed, edits: Sequence[Edit]) -> tuple[int, list[_CellEdit]]:
    """The cell that all the edits are in, and the edits there."""
    if not parsed.numbered_as_on_disk:
        raise NotebookEditError("lines of code share a line of the file")
    lines = parsed.text.encode("utf-8", "surrogatepass").split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found = []
    found_in = set()
    for edit in edits:
        first, last = (bisect_right(starts, offset) for offset in (edit.start, edit.end))
        start, end = edit.start - starts[first - 1], edit.end - starts[last - 1]
        # Up to the start of a line is not in it.
        cell = _cell_with(parsed, lines, first, last - 1 if last > first and not end else last)
        if last > cell.last and not edit.replacement.endswith("\n") and (edit.replacement or start):
            raise NotebookEditError("an edit goes beyond the end of its cell")
        found_in.add(cell)
        found.append(_CellEdit((first - cell.first, start), (last - cell.first, end), edit.replacement))
    if len(found_in) != 1:
        raise NotebookEditError("the edits are of several cells")
    (cell,) = found_in
    try:
        after = apply_edits(parsed.text, edits).split("\n")
    except (EditError, UnicodeError) as error:
        raise NotebookEditError(str(error)) from None
    if not any(map(str.strip, after[cell.first - 1 : len(after) - len(lines) + cell.last])):
        raise NotebookEditError(f"nothing would be left of cell {cell.number}")
    return cell.number, found


def _cell_with(parsed: Parsed, lines: Sequence[bytes], first: int, last: int) -> CodeCell:
    """The cell that has these lines, all Python. The line behind it is where lines are added at its end."""
    own = next((c for c in parsed.cells if c.first <= first and last <= c.last), None)
    cell = own or next((c for c in parsed.cells if c.last + 1 == first == last), None)
    if cell is None:
        raise NotebookEditError("an edit is not in one cell")
    top = next((n for n in range(cell.first, cell.last + 1) if lines[n - 1].strip()), None)
    if top is None:
        raise NotebookEditError("the cell is empty")
    rows = range(min(first, cell.last), last + 1)
    if any(
        n in rows or n == top >= rows.start for n in parsed.blanked
    ):  # nothing comes to stand above `%%time`
        raise NotebookEditError("an edit touches lines that are not Python")
    return cell


def _in_code(code: str, edit: _CellEdit) -> Edit:
    """The edit in the bytes of the cell, whose last line may have no end."""
    data = code.encode()
    starts = [0, *(match.end() for match in re.finditer(rb"\n", data))]
    (first, column), (last, end_column), new = edit.start, edit.end, edit.replacement
    if last < len(starts):
        return Edit(starts[first] + column, starts[last] + end_column, new)
    if first == last:
        return Edit(len(data), len(data), f"\n{new[:-1]}")
    if new:
        return Edit(starts[first] + column, len(data), new[:-1])
    # The line before becomes the last one.
    return Edit(len(data[: starts[first]].removesuffix(b"\n").removesuffix(b"\r")), len(data), "")


# -- the JSON text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Character:
    text: str
    written: str


def _rewritten(text: str, strings: Sequence[SourceString], edits: Sequence[Edit]) -> str:
    """The JSON text after edits of a cell. What no edit touches is written as it was, escapes included."""
    characters = [list(_characters(text[s.start + 1 : s.end - 1])) for s in strings]
    listed = text[: strings[0].start].rstrip().endswith("[")
    plain = not text.isascii() or not _ESCAPED.search(text)
    separators = _separators(text, strings)
    groups = _groups([len(part) for part in characters], _code(strings), edits)
    for first, last, changes in reversed(groups):
        old = [character for part in characters[first : last + 1] for character in part]
        for start, end, replacement in reversed(changes):
            old[start:end] = [_Character(c, json.dumps(c, ensure_ascii=not plain)[1:-1]) for c in replacement]
        new = list(_parts(old)) if listed else ["".join(c.written for c in old)]
        if len(new) > 1 and len(separators) > 1:
            raise NotebookEditError("its strings are not parted in one way")
        start, end = strings[first].start, strings[last].end
        if not new and last + 1 < len(strings):
            end = strings[last + 1].start
        elif not new:
            start = strings[first - 1].end
        text = text[:start] + separators[0].join(f'"{part}"' for part in new) + text[end:]
    return text


def _characters(written: str) -> Iterator[_Character]:
    for match in _CHARACTER.finditer(written):
        yield _Character(json.loads(f'"{match[0]}"') if match[0][0] == "\\" else match[0], match[0])


def _groups(
    sizes: Sequence[int], code: str, edits: Sequence[Edit]
) -> list[tuple[int, int, list[tuple[int, int, str]]]]:
    """The strings that change, from the first to the last of neighbours, and what changes in their text together."""
    data = code.encode()
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    groups: list[tuple[int, int, list[tuple[int, int, str]]]] = []
    for edit in sorted(edits):
        start, end = len(data[: edit.start].decode()), len(data[: edit.end].decode())
        first = min(bisect_right(starts, start), len(sizes)) - 1
        whole = edit.replacement.endswith("\n") or (not edit.replacement and start == starts[first])
        # What a line end no longer parts from it stands in the same string.
        last = bisect_right(starts, end - 1 if whole and end > start else end)
        last = max(first, min(last, len(sizes)) - 1)
        if groups and first <= groups[-1][1] + 1:
            first, before, changes = groups.pop()
            last = max(last, before)
        else:
            changes = []
        groups.append((first, last, [*changes, (start, end, edit.replacement)]))
    return [
        (first, last, [(start - starts[first], end - starts[first], new) for start, end, new in changes])
        for first, last, changes in groups
    ]


def _parts(characters: Sequence[_Character]) -> Iterator[str]:
    """A string for each line, as Jupyter writes them."""
    part = ""
    for character in characters:
        part += character.written
        if character.text == "\n":
            yield part
            part = ""
    if part:
        yield part


def _separators(text: str, strings: Sequence[SourceString]) -> list[str]:
    """What stands between the strings of a list, or would between two."""
    found = {text[a.end : b.start] for a, b in pairwise(strings)}
    if found:
        return sorted(found)
    before = text[: strings[0].start]
    return [f",{before[len(before.rstrip()) :] or ' '}"]
