"""How black and `ruff format` lay out the brackets of a call, for what a fix puts into one that spans several lines.

Such a bracket ends the line it opens on, and what closes it starts a line. Between them stands all of the content on one
line, or each of its parts on a line of its own, with a comma behind the last.
"""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MOST_TOKENS = 20_000  # of one statement
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the fields of a statement that hold others


@dataclass(slots=True)
class Bracket:
    """A pair of brackets: where they stand, the commas directly in them, and whether there is a comment, or a string of several lines."""

    start: int
    end: int = -1
    commas: list[int] = field(default_factory=list)
    fixed: bool = False  # its lines cannot be moved
    comprehension: bool = False
    lambdas: int = 0  # whose parameters are being read

    @property
    def separators(self) -> list[int]:
        """The commas between its parts."""
        return [] if self.comprehension else self.commas

    def parts(self, text: str) -> list[tuple[int, int]]:
        """Where its parts start and end, blanks left out; a comprehension is one."""
        cuts = [self.start, *self.separators, self.end]
        found = []
        for before, after in pairwise(cuts):
            inside = text[before + 1 : after]
            if inside.strip():
                start = before + 1 + len(inside) - len(inside.lstrip())
                found.append((start, start + len(inside.strip())))
        return found


def brackets(text: str, first: int, last: int) -> list[Bracket]:
    """The brackets of the statement that starts at `first`, read until `last` is behind and none is open.

    Offsets are those of `text`. Raises SyntaxError and tokenize.TokenError where the text is no Python.
    """
    lines = text[first:].split("\n", maxsplit=text.count("\n", first, last) + 400)
    starts = [first]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    done: list[Bracket] = []
    open_ones: list[Bracket] = []
    tokens = tokenize.generate_tokens(io.StringIO(text[first:]).readline)
    for number, token in enumerate(tokens):
        row, column = token.start
        if number > _MOST_TOKENS or row > len(lines):
            return []
        at = starts[row - 1] + column
        if token.type == tokenize.COMMENT or token.start[0] != token.end[0]:
            for bracket in open_ones if token.type in (tokenize.COMMENT, tokenize.STRING) else ():
                bracket.fixed = True
        elif token.type == tokenize.NAME and open_ones:
            open_ones[-1].comprehension |= token.string == "for" and not open_ones[-1].lambdas
            open_ones[-1].lambdas += token.string == "lambda"
        elif token.type == tokenize.OP and token.string in _CLOSING:
            open_ones.append(Bracket(at))
        elif token.type == tokenize.OP and token.string in _CLOSING.values():
            if not open_ones:
                return []
            done.append(open_ones.pop())
            done[-1].end = at
        elif token.type == tokenize.OP and open_ones:
            here = open_ones[-1]
            if token.string == "," and not here.lambdas:
                here.commas.append(at)
            here.lambdas -= token.string == ":" and here.lambdas > 0
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER) and at >= last:
            break
    return done


def laid_out(text: str, tree: ast.Module, changed: Iterable[tuple[int, int]], limit: int) -> str:
    """The text with the brackets around its changed regions as the formatters have them, where they were so before.

    `tree` is that of the text.
    """
    statements = sorted(set(_statement_lines(tree)))
    for start, end in sorted(changed, reverse=True):
        line = text.count("\n", 0, start) + 1
        number = bisect_right(statements, line)
        if not number:
            continue
        first = _offset(text, statements[number - 1])
        try:
            around = [b for b in brackets(text, first, end) if b.start < start and end <= b.end]
        except (tokenize.TokenError, SyntaxError):
            continue
        several = [b for b in around if "\n" in text[b.start : b.end]]
        if several:
            text = _spread(text, max(several, key=lambda b: b.start), (start, end), limit)
    return text


def _statement_lines(tree: ast.AST) -> Iterator[int]:
    blocks = [tree]
    while blocks:
        block = blocks.pop()
        for name in _BLOCKS:
            for node in getattr(block, name, ()):
                if isinstance(node, ast.stmt):
                    yield min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
                blocks.append(node)


def _offset(text: str, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = text.index("\n", at) + 1
    return at


def _spread(text: str, bracket: Bracket, changed: tuple[int, int], limit: int) -> str:
    """The text with each part of the bracket on a line of its own, where that is how it has to be now."""
    opening = text[bracket.start + 1 : _line_end(text, bracket.start)]
    outer = _line_start(text, bracket.end)
    parts = bracket.parts(text)
    if bracket.fixed or opening.strip() or outer.strip() or len(parts) < 2:
        return text
    inner = _line_start(text, parts[0][0])
    if inner.strip():
        return text
    own_line = {at for at, _ in parts if not _line_start(text, at).strip()}
    new = {at for at, _ in parts if changed[0] <= at < changed[1]}
    ended = not text[bracket.commas[-1] + 1 : bracket.end].strip()
    if "\n" not in text[parts[0][0] : parts[-1][1]]:
        content = text[parts[0][0] : parts[-1][1]] + ("," if ended else "")
        if len(inner + content) <= limit and not ended:
            return text
    elif own_line | new != {at for at, _ in parts} or (len(own_line) > 1 and not ended and not new):
        return text  # not as the formatters have it
    if ended and len(own_line) == len(parts):
        return text
    rows = [f"{inner}{_moved(text, part, inner)},\n" for part in parts]
    return f"{text[: bracket.start + 1]}\n{''.join(rows)}{outer}{text[bracket.end :]}"


def _line_start(text: str, at: int) -> str:
    """What stands before the offset on its line."""
    return text[text.rfind("\n", 0, at) + 1 : at]


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _moved(text: str, part: tuple[int, int], indent: str) -> str:
    """The part with its further lines as far in as its first one comes to stand."""
    line = _line_start(text, part[0])
    before = line[: len(line) - len(line.lstrip())]
    first, *rest = text[part[0] : part[1]].split("\n")
    return "\n".join([first, *(indent + row.removeprefix(before) if row.strip() else row for row in rest)])
