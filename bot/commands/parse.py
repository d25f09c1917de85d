"""Slash commands in the text of a comment: a pure function from Markdown to commands.

A command is a line whose first word is `/ptopt`. Markdown decides what is no word to us: quotes, code (fenced,
indented, or a span over several lines), HTML comments and raw HTML such as `<pre>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

WORD = "/ptopt"
MOST_COMMANDS = 5  # of a comment are run
MOST_LENGTH = 1000  # characters of a command; what follows is cut off
MOST_TEXT = 16_384  # characters of a comment that are read
_NEWLINE = re.compile(r"\r\n?")


@dataclass(frozen=True, slots=True)
class Line:
    """A command as it was written: the verb in lower case ("" for the bare word), and its arguments."""

    verb: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (WORD, self.verb, *self.words)))


def commands(body: str) -> tuple[Line, ...]:
    """The commands of a comment, in order, each once. Never raises."""
    body = _NEWLINE.sub("\n", body[:MOST_TEXT])
    if WORD not in body.lower():
        return ()
    written = body.split("\n")
    found: dict[Line, None] = {}
    quotes = 0
    for token in _markdown().parse(body):
        if token.type == "blockquote_open":
            quotes += 1
        elif token.type == "blockquote_close":
            quotes -= 1
        elif token.type == "inline" and not quotes and token.map is not None:
            lines = list(_lines(token.children or ()))
            if not _is_command(
                written[token.map[0]].split()
            ):  # the mark of a list or a heading stands before it
                del lines[0]
            found |= {
                _command(words): None for line in lines if _is_command(words := line[:MOST_LENGTH].split())
            }
    return tuple(found)


def new_commands(body: str, previous_body: str | None) -> tuple[Line, ...]:
    """The commands that an edit added; all of them for a comment that is new (`previous_body` None)."""
    if previous_body is None:
        return commands(body)
    known = set(commands(previous_body))
    # What stood too far down to be read does not become new when the text before it is shortened.
    rest = (line[:MOST_LENGTH].split() for line in previous_body[MOST_TEXT:].splitlines())
    known |= {_command(words) for words in rest if _is_command(words)}
    return tuple(line for line in commands(body) if line not in known)


def _is_command(words: Sequence[str]) -> bool:
    return bool(words) and words[0].lower() == WORD


def _command(words: list[str]) -> Line:
    return Line(words[1].lower(), tuple(words[2:])) if len(words) > 1 else Line("")


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Of what stands inside a line, only code and HTML matter; the rest stays as it was written.
    ignored = [
        "link",
        "image",
        "autolink",
        "entity",
        "emphasis",
        "balance_pairs",
        "fragments_join",
        "text_join",
    ]
    return MarkdownIt("commonmark").disable(ignored)


def _lines(tokens: Sequence[Token]) -> Iterator[str]:
    """The lines of a paragraph as they were written; those that begin inside code or HTML belong to the one before."""
    line = ""
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            yield line
            line = ""
        elif token.type == "code_inline":
            line += f"{token.markup}{token.content}{token.markup}"
        else:
            line += token.markup or token.content
    yield line
