"""The lines and statements of a Python text, without parsing it: the text may be hostile, or half an edit.

One regular expression splits it, in time linear in its length; whatever it is, there is a result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

_TOKEN = re.compile(
    r"""
      (?P<string> "{3} (?:[^\\"]+|\\.|"(?!""))* (?:"{3}|\\?\Z) | '{3} (?:[^\\']+|\\.|'(?!''))* (?:'{3}|\\?\Z)
                | " (?:[^\\"\n]+|\\.)* "? | ' (?:[^\\'\n]+|\\.)* '? )
    | (?P<comment> \#[^\n]* )
    | (?P<joined> \\\r?\n )
    | (?P<newline> \n )
    | (?P<space> [^\S\n]+ )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | (?P<other> [^\s"'\#\\()\[\]{}]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SCOPE = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w{1,40})")


@dataclass(frozen=True, slots=True)
class Unit:
    """A line or a statement: its text, its lines in the file (1-based), and the function or class around it ("" for none)."""

    text: str
    first: int
    last: int
    scope: str


def statements(text: str) -> list[Unit]:
    """The logical lines: no comments, no white space outside of strings, no commas before a closing bracket."""
    found: list[Unit] = []
    around: list[tuple[int, str]] = []  # indentation and dotted name of the functions and classes around
    source = text.split("\n")
    parts: list[str] = []
    depth, line, first = 0, 1, 1

    def end(last: int) -> None:
        if parts:
            raw = source[first - 1]
            indent = len(raw) - len(raw.lstrip())
            while around and around[-1][0] >= indent:
                around.pop()
            scope = around[-1][1] if around else ""
            found.append(Unit("".join(parts), first, last, scope))
            if named := _SCOPE.match(raw):
                around.append((indent, f"{scope}.{named[1]}"))
            parts.clear()

    for token in _TOKEN.finditer(text):
        kind, piece = token.lastgroup, token[0]
        if kind in ("string", "open", "close", "other") and not parts:
            first = line
        if kind == "newline" and depth == 0:
            end(line)
        elif kind == "string":
            parts.append(_plain(piece))
        elif kind == "open":
            depth += 1
            parts.append(piece)
        elif kind == "close":
            depth = max(0, depth - 1)
            if parts and parts[-1] == ",":
                parts.pop()
            parts.append(piece)
        elif kind == "other":
            # A trailing comma has to be a part of its own.
            parts.extend([piece[:-1], ","] if len(piece) > 1 and piece.endswith(",") else [piece])
        line += piece.count("\n")
    end(line)
    return found


def lines(text: str, found: list[Unit]) -> list[Unit]:
    """The physical lines, without white space at their ends; `found` are the statements of the same text."""
    source = text.split("\n")
    scopes = [""] * len(source)  # that of the statement, or of the one before
    for unit, following in zip_longest(found, found[1:]):
        until = len(source) if following is None else following.first - 1
        scopes[unit.first - 1 : until] = [unit.scope] * (until - unit.first + 1)
    return [
        Unit(line.rstrip(), number, number, scope)
        for number, (line, scope) in enumerate(zip(source, scopes, strict=True), start=1)
    ]


def _plain(string: str) -> str:
    """A short string with the quotes that most formatters choose."""
    body = string[1:-1]
    plain = len(string) >= 2 and string[0] == string[-1] == "'" and not string.startswith("'''")
    return f'"{body}"' if plain and '"' not in body and "\\" not in body else string
