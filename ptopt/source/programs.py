"""What the programs that a file is part of need: imports that only older versions of a library have, in whatever module of theirs.

Read from the text of the imports that start a line: they stand under no condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from ptopt.project.pins import Pin
from ptopt.project.removed import LAST_PARTS, REMOVED, bounds
from ptopt.source.searchable import Searchable, identifiers_of

_IMPORT = re.compile(
    rb"^(?:from[ \t]+[\w.]+[ \t]+import[ \t]+(?:\([^)]{0,4000}\)|[^\n#\\]+)|import[ \t]+[\w., \t]+)", re.M
)
_MODULES = "|".join(sorted({re.escape(removed.module) for removed in REMOVED}))
OLD = re.compile(
    rf"^(?:from|import)[ \t]+(?:torch[ \t]+import[^\n]*\b_six\b|(?:{_MODULES})\b)".encode(), re.M
)
"""Of the texts whose imports may bound a version."""


def bounds_of_programs(path: str, files: Mapping[str, Searchable], old: Iterable[str]) -> list[Pin]:
    """What bounds the versions of a program that needs the file at `path`: imports of the modules in `old`, some of the `files`."""
    found = {other: pins for other in old if other != path and (pins := files[other].once(_bounds))}
    if not found:
        return []
    needs = {
        other: _needed(other, text.once(_imports), files)
        for other, text in files.items()
        if other.endswith(".py")
    }
    programs = [closure for start in needs if path in (closure := _closure(start, needs))]
    shared = {other for other in found if any(other in closure for closure in programs)}
    return [replace(pin, path=other) for other in sorted(shared) for pin in found[other]]


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


def _bounds(data: bytes) -> list[Pin]:
    """Of one module, wherever it lies."""
    return bounds("", ast.Module(list(_statements(data, LAST_PARTS)), []))


def _imports(data: bytes) -> list[tuple[int, str]]:
    """The modules, as (level, name), that a module may import."""
    found: dict[tuple[int, str], None] = {}
    for statement in _statements(data):
        if isinstance(statement, ast.Import):
            found |= dict.fromkeys((0, alias.name) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            origin = statement.module or ""
            inner = f"{origin}." if origin else ""
            names = [origin, *(inner + alias.name for alias in statement.names)]
            found |= dict.fromkeys((statement.level, name) for name in names)
    return list(found)


def _closure(start: str, needs: Mapping[str, frozenset[str]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = needs.get(waiting.pop(), frozenset()) - reached
        reached |= new
        waiting += new
    return reached


def _needed(path: str, imports: Iterable[tuple[int, str]], files: Container[str]) -> frozenset[str]:
    """The files without which the one at `path` cannot be imported."""
    folder = path.rpartition("/")[0]
    return frozenset(found for level, name in imports for found in _file_of(name, level, folder, files))


def _file_of(name: str, level: int, folder: str, files: Container[str]) -> list[str]:
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
