"""Configurations of lines, as `configargparse` reads them: `num_workers = 8`, with comments behind `#` or `;`."""

from __future__ import annotations

import re

from ptopt.configs.reading import decoded
from ptopt.configs.values import Document, Entry, Mapping, Plain, Scalar

_LINE = re.compile(r"^[ \t]*(?:--)?(?P<key>[A-Za-z][\w-]*)[ \t]*=[ \t]*(?P<value>[^\n#;]*)(?:[#;].*)?$", re.M)
_OTHER = re.compile(r"^[ \t]*(?:[#;].*|\[.*\][ \t]*)?$|^-+$")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$", re.I)
_WORDS: dict[str, Plain] = {"true": True, "false": False, "none": None}
_LONGEST = 30  # characters of a number
_MOST_OTHERS = 0.2  # of the lines: a text that people read has more


def read_lines(data: bytes) -> Document | None:
    """The settings of such a file, each by its name; None of any other text. Lists are left out."""
    text = decoded(data)
    if not isinstance(text, str):
        return None
    found = [match for match in _LINE.finditer(text) if not match["value"].startswith(("[", "{"))]
    lists = sum(1 for match in _LINE.finditer(text)) - len(found)
    lines = [line for line in text.splitlines() if not _OTHER.match(line)]
    if not found or len(lines) - len(found) - lists > _MOST_OTHERS * len(lines):
        return None
    entries = tuple(
        Entry(
            Scalar(match.start("key"), match.end("key"), match["key"], match["key"].replace("-", "_")),
            Scalar(match.start("value"), match.start("value") + len(value), _plain(value), value),
        )
        for match in found
        for value in (match["value"].rstrip(" \t\r"),)
    )
    root = Mapping(0, len(text), entries, len(entries) + 1)
    return Document("lines", text, (root,))


def _plain(text: str) -> Plain:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) <= _LONGEST and _NUMBER.match(text):
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text
