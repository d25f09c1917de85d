"""Notebooks: the code cells of an `.ipynb` file as one Python text, the JSON line of each of its lines, and where the
strings of the cells stand in the JSON text.

The standard `json` module gives no positions. The small reader here walks the few levels that lead to the
sources of the cells and leaves every value on the way to `json` itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptopt.source.decode import MAX_BYTES, CodeCell, Parsed, names_in
from ptopt.source.magics import blank_magics, is_foreign_cell
from ptopt.syntax import ParseError, check_text, parse_text

MAX_NOTEBOOK_BYTES = 20_000_000  # the pictures among the outputs count too
_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers stay text: converting a huge one takes long, or raises.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


@dataclass(frozen=True, slots=True)
class SourceString:
    """One of the strings that make up the source of a cell, and where it stands in the JSON text."""

    text: str
    line: int
    start: int  # of the opening quote, in characters
    end: int  # behind the closing one


@dataclass(slots=True)
class _Cell:
    number: int  # among all cells, from 1
    strings: tuple[SourceString, ...]
    lines: list[str]
    head: list[int]  # the JSON line of each
    blanked: list[int]
    first: int = 0  # line of the joined text

    def text(self) -> str:
        return "\n".join(self.lines)

    def hidden(self) -> list[str]:
        """The lines that were blanked, as they are in the notebook."""
        written = "".join(string.text for string in self.strings).split("\n") if self.blanked else []
        return [written[index] for index in self.blanked]

    def clear(self) -> None:
        self.lines = [""] * len(self.lines)
        self.blanked = list(range(len(self.lines)))


def parse_notebook(data: bytes) -> Parsed:
    """Parse the code cells of a notebook (nbformat 4, Python).

    Cells in another language are blanked; a cell that does not parse is blanked and listed in `lost`. Raises
    ParseError, and nothing else, whatever the bytes are.
    """
    if len(data) > MAX_NOTEBOOK_BYTES:
        raise ParseError(f"larger than {MAX_NOTEBOOK_BYTES // 1_000_000} MB")
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        reader = _Reader(data.decode(encoding))
        cells = _read_cells(reader)
    except UnicodeDecodeError as error:
        raise ParseError(f"not UTF-8 at byte {error.start + (3 if encoding == 'utf-8-sig' else 0)}") from None
    except json.JSONDecodeError as error:
        raise ParseError(f"not valid JSON: {error.msg}", error.lineno) from None
    except RecursionError:
        raise ParseError("not a notebook: nested too deeply") from None
    if sum(len(line) for cell in cells for line in cell.lines) > MAX_BYTES:
        raise ParseError(f"more than {MAX_BYTES // 1_000_000} MB of code, treated as generated")
    for cell in cells:
        if is_foreign_cell(cell.lines):
            cell.clear()
    lost: list[str] = []
    try:
        text, head, blanked = _join(cells)
        check_text(text)
        tree = parse_text(text)
    except ParseError:
        lost = [reason for cell in cells if (reason := _mend(cell))]
        if lost and not any(line for cell in cells for line in cell.lines):
            raise ParseError(f"no cell parses; {lost[0]}") from None
        text, head, blanked = _join(cells)
        tree = parse_text(text)
    hidden = frozenset(name for cell in cells for name in names_in(cell.hidden()))
    places = tuple(CodeCell(cell.number, cell.first, cell.first + len(cell.lines) - 1) for cell in cells)
    return Parsed(text, tree, encoding, head, blanked, tuple(lost), hidden, places)


def code_cells(text: str) -> dict[int, tuple[SourceString, ...]]:
    """The strings that each code cell is written in, by the number of the cell, from 1.

    `text` is the JSON text of a notebook that `parse_notebook` reads.
    """
    return {cell.number: cell.strings for cell in _read_cells(_Reader(text))}


def cell_lines(data: bytes) -> dict[int, tuple[int, int]]:
    """For each JSON line that holds one line of code: the number of its cell, from 1, and the line in that cell.

    `data` is a notebook that `parse_notebook` reads.
    """
    cells = _read_cells(_Reader(data.decode("utf-8-sig")))
    places = [(at, (cell.number, line)) for cell in cells for line, at in enumerate(cell.head, 1)]
    times = Counter(at for at, _ in places)
    return {at: place for at, place in places if times[at] == 1}


def spread(data: bytes) -> tuple[bytes, dict[int, int]] | None:
    """A notebook with the same cells and a JSON line for each line of code; and for each of these its line in `data`.

    For notebooks that were saved without line breaks. `data` is one that `parse_notebook` reads. None where that cannot be
    done: a cell ends in a lone carriage return, or the notebook would be too large.
    """
    cells = {cell.number: cell for cell in _read_cells(_Reader(data.decode("utf-8-sig")))}
    written = [
        {"cell_type": "code", "source": [f"{line}\n" for line in cells[number].lines]}
        if number in cells
        else {"cell_type": "raw", "source": []}
        for number in range(1, max(cells, default=0) + 1)
    ]
    notebook = {"cells": written, "metadata": {}, "nbformat": 4}
    text = json.dumps(notebook, indent=1)
    if len(text) > MAX_NOTEBOOK_BYTES:
        return None
    lines: dict[int, int] = {}
    for cell in _read_cells(_Reader(text)):
        if cell.lines != cells[cell.number].lines:
            return None
        lines.update(zip(cell.head, cells[cell.number].head, strict=True))
    return text.encode(), lines


def _mend(cell: _Cell) -> str:
    """Blank what keeps the cell from parsing. Returns why all of it had to go, "" where it did not."""
    try:
        check_text(cell.text())
        try:
            parse_text(cell.text())
        except ParseError:
            cell.blanked = blank_magics(cell.lines)
            parse_text(cell.text())
    except ParseError as error:
        line = cell.head[min(error.line or 1, len(cell.head)) - 1]
        cell.clear()
        return f"cell {cell.number}: {error.reason} (line {line})"
    return ""


def _join(cells: list[_Cell]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The text, the JSON line of each of its lines, and the lines that were blanked.

    Where every source line has a JSON line of its own, as notebooks are usually written, it stands at that very line of the
    text, with empty lines between the cells: then line numbers in the text are line numbers of the file.
    """
    lines: list[str] = []
    head: list[int] = []
    blanked: list[int] = []
    for cell in cells:
        gone = frozenset(cell.blanked)
        for index, (line, at) in enumerate(zip(cell.lines, cell.head, strict=True)):
            gap = range(len(lines) + 1, at)
            lines += [""] * len(gap)
            head += gap
            lines.append(line)
            head.append(at)
            if index in gone:
                blanked.append(len(lines))
        cell.first = len(lines) - len(cell.lines) + 1
        if head[-1] != len(lines):  # nothing else will part this cell from the next
            lines.append("")
            head.append(cell.head[-1])
    return "\n".join(lines), tuple(head or [1]), tuple(blanked)


class _Reader:
    """A position in a JSON text, and the line it is on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._line = 1
        self._counted = 0

    def peek(self) -> str:
        """The next character that is no white space; "" at the end."""
        space = _SPACE.match(self._text, self._pos)
        self._pos = space.end() if space else self._pos
        return self._text[self._pos : self._pos + 1]

    @property
    def position(self) -> int:
        return self._pos

    def line(self) -> int:
        self._line += self._text.count("\n", self._counted, self._pos)
        self._counted = self._pos
        return self._line

    def expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise json.JSONDecodeError(f"expected '{sign}'", self._text, self._pos)
        self._pos += len(sign)

    def _wants(self, sign: str, otherwise: str) -> None:
        found = self.peek()
        if not found:
            raise json.JSONDecodeError("the file ends early", self._text, self._pos)
        if found != sign:
            raise ParseError(f"not a notebook: {otherwise}", self.line())

    def value(self) -> object:
        """The next value, whole."""
        self.peek()
        value: object
        value, self._pos = _DECODER.raw_decode(self._text, self._pos)
        return value

    def string(self, what: str) -> str:
        self._wants('"', f"{what} is not a string")  # numbers are text too, once they are read
        return str(self.value())

    def members(self, what: str) -> Iterator[str]:
        """The keys of an object. The caller reads the value of each before it asks for the next."""
        self._wants("{", f"{what} is not an object")
        self._pos += 1
        seen: set[str] = set()
        if self.peek() != "}":
            while True:
                key = self.string("a key")
                if key in seen:
                    raise ParseError(f"not a notebook: {what} has the key '{key[:40]}' twice", self.line())
                seen.add(key)
                self.expect(":")
                yield key
                if self.peek() != ",":
                    break
                self._pos += 1
        self.expect("}")

    def items(self, what: str) -> Iterator[int]:
        """The indices of an array. The caller reads each item before it asks for the next."""
        self._wants("[", f"{what} is not a list")
        self._pos += 1
        index = 0
        if self.peek() != "]":
            while True:
                yield index
                index += 1
                if self.peek() != ",":
                    break
                self._pos += 1
        self.expect("]")


def _read_cells(reader: _Reader) -> list[_Cell]:
    cells: list[_Cell] = []
    version: object = None
    language = "python"
    for key in reader.members("the file"):
        if key == "cells":
            cells = [cell for number in reader.items("'cells'") if (cell := _read_cell(reader, number + 1))]
        elif key == "nbformat":
            version = reader.value()
        elif key == "metadata":
            language = _language(reader.value())
        else:
            reader.value()
    if reader.peek():
        raise ParseError("not valid JSON: text behind the end", reader.line())
    if version != "4":
        version_text = f"nbformat {version[:9]}" if isinstance(version, str) else "no nbformat"
        raise ParseError(f"a notebook of {version_text}; only nbformat 4 is read")
    if language not in ("python", "ipython"):
        raise ParseError(f"a notebook in {language[:20]}, not in Python")
    return cells


def _read_cell(reader: _Reader, number: int) -> _Cell | None:
    what = f"cell {number}"
    kind = ""
    reader.peek()
    at = reader.line()
    strings: tuple[SourceString, ...] = ()
    for key in reader.members(what):
        if key == "cell_type":
            kind = reader.string(f"the type of {what}")
        elif key == "source":
            at, strings = reader.line(), tuple(_read_source(reader, f"the source of {what}"))
        else:
            reader.value()
    return _Cell(number, strings, *_lines(strings, at), []) if kind == "code" else None


def _read_source(reader: _Reader, what: str) -> Iterator[SourceString]:
    for _ in reader.items(what) if reader.peek() == "[" else (0,):
        reader.peek()
        start = reader.position
        text = reader.string(what)
        yield SourceString(text, reader.line(), start, reader.position)


def _lines(strings: Sequence[SourceString], at: int) -> tuple[list[str], list[int]]:
    """Lines of a cell, and for each the JSON line where it begins; `at` is that of a source without any string."""
    head: list[int] = []
    begins = True
    for string in strings:
        at, text = string.line, string.text
        if text:
            ends = text.endswith("\n")
            head += [at] * (begins + text.count("\n") - ends)
            begins = ends
    lines = "".join(string.text for string in strings).split("\n")
    if begins and len(lines) > 1 and not lines[-2].endswith("\r"):
        lines.pop()  # what ends in a newline has no further line
    elif begins:
        head.append(at)
    return lines, head


def _language(metadata: object) -> str:
    """What the metadata of a notebook says of its language, "python" where they say nothing."""
    if isinstance(metadata, dict):
        for group, key in (("language_info", "name"), ("kernelspec", "language")):
            inner = metadata.get(group)
            name = inner.get(key) if isinstance(inner, dict) else None
            if isinstance(name, str) and name:
                return name.lower()
    return "python"
