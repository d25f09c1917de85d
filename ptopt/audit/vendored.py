"""Libraries that lie in a repository with examples of their own: those are no trainings of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ptopt.audit.launches import Launch, of_script
from ptopt.audit.values import EntryPoint

_BUILDS = ("setup.py", "pyproject.toml")
_EXAMPLES = re.compile(r"(examples?|tests?|demos?|benchmarks?|tutorials?)/")
_MOST = 2  # more of them are the packages of one project


def libraries(files: Iterable[str]) -> tuple[str, ...]:
    """The folders below the root that are built on their own, and hold a package of the folder's name: `apex/apex`."""
    paths = frozenset(files)
    folders = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in _BUILDS} - {""}
    found = [folder for folder in folders if f"{folder}/{folder.rpartition('/')[2]}/__init__.py" in paths]
    return tuple(sorted(found)) if len(found) <= _MOST else ()


def without_examples(
    entries: list[EntryPoint], files: Mapping[str, bytes], started: Mapping[str, list[Launch]]
) -> tuple[list[EntryPoint], list[str]]:
    """Without the examples of such libraries that only commands of the library start, where other scripts train; and which they are,
    in words.
    """
    lines: list[str] = []
    for folder in libraries(files):
        inside = f"{folder}/"
        examples = [
            entry
            for entry in entries
            if entry.path.startswith(inside)
            and _EXAMPLES.match(entry.path, len(inside))
            and all(launch.place.path.startswith(inside) for launch in of_script(started, entry.path, files))
        ]
        if examples and any(not entry.path.startswith(inside) for entry in entries):
            entries = [entry for entry in entries if entry not in examples]
            lines += [f"{entry.path}: an example of the library in {folder}" for entry in examples]
    return entries, lines
