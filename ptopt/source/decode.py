"""From the bytes of a head file, notebook or not, to its Python text and tree, or to the reason why there is none.

Lines are those git counts (they end at a line feed), and `ast` must count the same ones: a file where the
two differ is refused, because a comment would stand on the wrong line.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ptopt.pathkind import is_notebook
from ptopt.syntax import ParseError, check_text, parse_text

MAX_BYTES = 2_000_000

# They decode ASCII as ASCII, yet text written in them means something else, or takes quadratic time.
_REFUSED_CODECS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "charmap"})
_ASCII = bytes(range(128))
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A code cell of a notebook: its number among all cells, from 1, and its first and last line in the text."""

    number: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """The Python text of one file and its tree.

    In a plain file, `text` has the lines and the UTF-8 byte offsets of the file itself: a blanked line keeps
    its length. `text.encode(encoding)` gives back the bytes of the file where nothing was blanked.
    """

    text: str  # newlines as in the file
    tree: ast.Module
    encoding: str  # for writing back
    head_lines: tuple[int, ...] | None = None  # notebooks: [i] is the head line that holds line i+1 of `text`
    blanked: tuple[int, ...] = ()  # lines of `text` blanked as notebook magics
    lost: tuple[str, ...] = ()  # notebooks: the cells that were left out, each with the reason
    hidden: frozenset[str] = frozenset()  # the names in what was blanked: magics may read them
    cells: tuple[CodeCell, ...] = ()

    @property
    def numbered_as_on_disk(self) -> bool:
        """Do line numbers of `text` hold in the file, too? Not in a notebook that keeps a cell on one JSON line."""
        lines = self.head_lines
        return lines is None or all(line == number for number, line in enumerate(lines, 1))


def parse_python(path: str, data: bytes) -> Parsed:
    """Parse the head file `data`, that of a notebook as one.

    Raises ParseError, and nothing else, whatever the bytes are.
    """
    if is_notebook(path):
        from ptopt.source.notebook import parse_notebook

        return parse_notebook(data)
    if len(data) > MAX_BYTES:
        raise ParseError(f"larger than {MAX_BYTES // 1_000_000} MB, treated as generated")
    text, encoding = decode_python(data)
    check_text(text)
    try:
        return Parsed(text, parse_text(text), encoding)
    except ParseError as error:
        if error.line is None:
            raise
        from ptopt.source.magics import blank_magics

        lines = text.split("\n")
        blanked = blank_magics(lines)
        if not blanked:
            raise
        written = text.split("\n")
        hidden = names_in(written[index] for index in blanked)
        text = "\n".join(lines)
    return Parsed(text, parse_text(text), encoding, blanked=tuple(i + 1 for i in blanked), hidden=hidden)


def names_in(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(name for line in lines for name in _NAME.findall(line))


def decode_python(data: bytes) -> tuple[str, str]:
    """Text of a Python file and the encoding that turns it back into the same bytes. Raises ParseError."""
    if b"\0" in data:
        raise ParseError("holds NUL bytes: a binary file, or UTF-16")
    encoding = _declared_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # The codec of a marked file counts from behind its mark.
        offset = error.start + (3 if encoding == "utf-8-sig" else 0)
        what = (
            f"not UTF-8 at byte {offset}, and no encoding is declared"
            if encoding == "utf-8"
            else f"not {encoding} at byte {offset}"
        )
        raise ParseError(what, data.count(b"\n", 0, offset) + 1) from None
    except (UnicodeError, LookupError):
        raise ParseError(f"cannot be decoded as {encoding}") from None
    if encoding not in ("utf-8", "utf-8-sig") and not _is_plain(encoding, text, data):
        raise ParseError(f"declares the encoding {encoding}, in which it cannot be written back")
    return text, encoding


def _declared_encoding(data: bytes) -> str:
    marked = data.startswith(codecs.BOM_UTF8)
    if data.find(b"coding", 0, data.find(b"\n", data.find(b"\n") + 1)) < 0:  # in the first two lines
        return "utf-8-sig" if marked else "utf-8"
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding == "utf-8-sig":
            return encoding
        encoding = codecs.lookup(encoding).name
        refused = encoding.replace("-", "_") in _REFUSED_CODECS
        superset = not refused and _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except SyntaxError as error:
        raise ParseError(f"bad encoding declaration: {error.msg}") from None
    except (ValueError, LookupError):
        superset = False
    if not superset:
        raise ParseError("declares an encoding that does not extend ASCII")
    return encoding


def _is_plain(encoding: str, text: str, data: bytes) -> bool:
    """Whether text and bytes stand for each other, line for line."""
    try:
        return text.encode(encoding) == data and text.count("\n") == data.count(b"\n")
    except UnicodeError:
        return False
