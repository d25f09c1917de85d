"""TOML as values: `tomllib` reads them but names no places, so keys are looked up line by line."""

from __future__ import annotations

import re
import sys

from ptopt.configs.compose import MOST_DEPTH, MOST_VALUES, RefusedError
from ptopt.configs.values import Entry, Mapping, Node, Scalar, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = re.compile(r"[ \t]*\[\[?([^\[\]\n]+)\]\]?[ \t]*(?:#.*)?$")
_KEY = re.compile(r"[ \t]*([\w.\"' -]+?)[ \t]*=[ \t]*(.*?)[ \t\r]*$")
_AT_LINE = re.compile(r"line (\d+)")
_MOST_DOTS = 200  # in a line; a deeper key takes quadratic time
_Places = dict[tuple[str, ...], tuple[int, int, int, int]]


def toml_values(text: str) -> Mapping:
    """The root of a TOML text. A value that its line does not show has the place of what holds it. Raises RefusedError."""
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise RefusedError("nested too deeply")
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        offset = sum(len(line) + 1 for line in text.split("\n")[: int(at[1]) - 1]) if at else None
        raise RefusedError(f"not TOML: {str(error).partition(' (')[0]}", offset) from None
    except (RecursionError, ValueError):
        raise RefusedError("nested too deeply, or holds a number that is too long") from None
    root = _table(read, (), (0, 0, 0, len(text)), _places(text), 0)
    if root.size > MOST_VALUES:
        raise RefusedError(f"more than {MOST_VALUES:,} values")
    return root


def _places(text: str) -> _Places:
    """Path of keys -> bounds of the key and of the value, where both stand on one line."""
    found: _Places = {}
    table: tuple[str, ...] = ()
    start = 0
    for line in text.split("\n"):
        if match := _TABLE.match(line.rstrip("\r")):
            table = _path(match[1])
            found.setdefault(table, (start + match.start(1), start + match.end(1), start, start + len(line)))
        elif match := _KEY.match(line):
            bounds = (*match.span(1), *match.span(2))
            first, second, third, fourth = (start + bound for bound in bounds)
            found.setdefault((*table, *_path(match[1])), (first, second, third, fourth))
        start += len(line) + 1
    return found


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _table(
    table: dict[str, object],
    path: tuple[str, ...],
    place: tuple[int, int, int, int],
    places: _Places,
    depth: int,
) -> Mapping:
    _, _, start, end = place
    entries = []
    for key, value in table.items():
        at = places.get((*path, key), (start, start, start, end))
        node = _node(value, (*path, key), at, places, depth + 1)
        entries.append(Entry(Scalar(at[0], at[1], key, key), node))
    return Mapping(start, end, tuple(entries), 1 + sum(1 + entry.value.size for entry in entries))


def _node(
    value: object, path: tuple[str, ...], place: tuple[int, int, int, int], places: _Places, depth: int
) -> Node:
    _, _, start, end = place
    if depth > MOST_DEPTH:
        raise RefusedError(f"nested more than {MOST_DEPTH} levels deep", start)
    if isinstance(value, dict):
        return _table(value, path, place, places, depth)
    if isinstance(value, list):
        items = tuple(_node(item, path, place, places, depth + 1) for item in value)
        return Sequence(start, end, items, 1 + sum(item.size for item in items))
    plain = value if isinstance(value, (bool, int, float, str)) else str(value)
    return Scalar(start, end, plain, str(value))
