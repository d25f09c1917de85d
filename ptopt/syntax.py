"""From Python text to a syntax tree, or to the reason why there is none."""

from __future__ import annotations

import ast
import re
import string
import sys
import warnings

MAX_LINE = 100_000  # characters
MAX_WORDS = 200_000  # names, numbers and operators

_PYTHON_2 = re.compile(
    r"Missing parentheses in call to '(?:print|exec)'"
    r"|multiple exception types must be parenthesized"
    r"|leading zeros in decimal integer literals"
)
# Of an identifier or a number in the bytes of a file; all that is not ASCII counts, as in Python's own tokenizer.
IN_WORDS = frozenset(c for c in range(256) if c > 127 or chr(c).isalnum() or c == ord("_"))
TO_WORDS = bytes(c if c in IN_WORDS else ord(" ") for c in range(256))
_WORDS_AND_SPACE = bytes(IN_WORDS) + string.whitespace.encode()
_PRINTED = 160


class ParseError(ValueError):
    """A file that cannot be read as Python. Its text is the reason in "not reviewed: <path>: <reason>"."""

    def __init__(self, reason: str, line: int | None = None, *, syntax: bool = False) -> None:
        shown = "".join(c if c.isprintable() else "?" for c in reason[:_PRINTED])
        super().__init__(f"{shown} (line {line})" if line else shown)
        self.reason = shown
        self.line = line
        self.syntax = syntax  # the parser refused it; else we do, or the bytes are no text


def check_text(text: str) -> None:
    """Raises ParseError for text that only a generator writes, or whose lines Python and git count differently."""
    # A tree takes up to 700 times the memory of its text; a hand-written file has one word in six characters.
    if len(text) > MAX_WORDS and _words(text) > MAX_WORDS:
        raise ParseError(f"more than {MAX_WORDS:,} words, treated as generated")
    if len(text) > MAX_LINE:
        for number, line in enumerate(text.split("\n"), start=1):
            if len(line) > MAX_LINE:
                raise ParseError(f"a line of more than {MAX_LINE:,} characters, treated as generated", number)
    if "\r" in text:
        alone = re.search(r"\r(?!\n)", text)
        if alone:
            number = text.count("\n", 0, alone.start()) + 1
            raise ParseError("a carriage return alone ends a line, which shifts line numbers", number)


def _words(text: str) -> int:
    """How many names, numbers and signs there are, by whole passes: a pattern takes seven times as long."""
    data = text.encode("utf-8", "surrogatepass")
    return len(data.translate(TO_WORDS).split()) + len(data.translate(None, _WORDS_AND_SPACE))


def parse_text(text: str) -> ast.Module:
    """`ast.parse` that prints no warning and raises ParseError alone, with the line where there is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        message = str(error.msg)
        if _PYTHON_2.match(message):
            raise ParseError(f"not Python 3: {message}", error.lineno or 1, syntax=True) from None
        running = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        raise ParseError(
            f"does not parse with {running}: {message}", error.lineno or 1, syntax=True
        ) from None
    except (RecursionError, MemoryError):
        raise ParseError("nested too deeply to be parsed") from None
    except (ValueError, OverflowError) as error:
        raise ParseError(f"does not parse: {error}", syntax=True) from None
