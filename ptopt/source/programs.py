"""What the programs that a file is part of need: imports that only older versions of a library have, in whatever module of theirs.

Read from the text of the imports that start a line: they stand under no condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from ptopt.project.pins import Pin
from ptopt.project.removed import LAST_PARTS, REMOVED, bounds
from ptopt.source.searchable import identifiers_of

_IMPORT = re.compile(
    rb"^(?:from[ \t]+[\w.]+[ \t]+import[ \t]+(?:\([^)]{0,4000}\)|[^\n#\\]+)|import[ \t]+[\w., \t]+)", re.M
)
_MODULES = "|".join(sorted({re.escape(removed.module) for removed in REMOVED}))
OLD = re.compile(
    rf"^(?:from|import)[ \t]+(?:torch[ \t]+import[^\n]*\b_six\b|(?:{_MODULES})\b)".encode(), re.M
)
"""Of the texts whose imports may bound a version."""


def bounds_of_programs(path: str, files: Mapping[str, bytes], old: Mapping[str, bytes]) -> list[Pin]:
    """What bounds the versions of a program that needs the file at `path`: imports of the modules in `old`, some of the `files`."""
    found = {other: pins for other, data in old.items() if other != path and (pins := _bounds(other, data))}
    if not found:
        return []
    needs = {other: _needed(other, data, files) for other, data in files.items() if other.endswith(".py")}
    programs = [closure for start in needs if path in (closure := _closure(start, needs))]
    shared = {other for other in found if any(other in closure for closure in programs)}
    return [pin for other in sorted(shared) for pin in found[other]]


def _statements(data: bytes, having: frozenset[bytes] | None = None) -> Iterator[ast.stmt]:
    """The imports that start a line, or those of them that hold one of the words."""
    for match in _IMPORT.finditer(data):
        if having is not None and having.isdisjoint(identifiers_of(match[0])):
            continue
        try:
            parsed = ast.parse(match[0].decode("utf-8", "replace").strip())
        except (SyntaxError, ValueError):
            continue
        for statement in parsed.body:
            ast.increment_lineno(statement, data.count(b"\n", 0, match.start()))
            yield statement


def _bounds(path: str, data: bytes) -> list[Pin]:
    return bounds(path, ast.Module(list(_statements(data, LAST_PARTS)), []))


def _closure(start: str, needs: Mapping[str, frozenset[str]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = needs.get(waiting.pop(), frozenset()) - reached
        reached |= new
        waiting += new
    return reached


def _needed(path: str, data: bytes, files: Mapping[str, bytes]) -> frozenset[str]:
    """The files without which the one at `path` cannot be imported."""
    found: set[str] = set()
    folder = path.rpartition("/")[0]
    for statement in _statements(data):
        if isinstance(statement, ast.Import):
            names = [(0, alias.name) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            origin = statement.module or ""
            inner = f"{origin}." if origin else ""
            names = [(statement.level, origin), *((statement.level, inner + a.name) for a in statement.names)]
        else:
            continue
        for level, name in names:
            found.update(_file_of(name, level, folder, files))
    return frozenset(found)


def _file_of(name: str, level: int, folder: str, files: Mapping[str, bytes]) -> list[str]:
    """The module of the repository that an import in a folder means; of another package none."""
    if not name:
        return []
    tail = name.replace(".", "/")
    bases = [folder]
    for _ in range(level - 1):
        bases = [bases[0].rpartition("/")[0]]
    while not level and bases[-1]:  # the folder of a script is on the path, and so is the root
        bases.append(bases[-1].rpartition("/")[0])
    for base in bases:
        stem = f"{base}/{tail}".lstrip("/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in files:
                return [path]
    return []
