"""Which files of a repository may answer questions about a file under review: chosen by path alone, so that nothing is read in vain."""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import cached_property

from ptopt.pathkind import PYTHON, path_kind

MOST_FILES = 40
MOST_BYTES = 200_000  # of one file
_KEPT = 3 * MOST_FILES  # contents that are not read again for the next folder
# Where programs start and loops stand: the callers of most code.
_ENTRY = re.compile(
    r"(^|_)(train|trainer|training|main|engine|run|runner|finetune|pretrain|infer|inference|eval|evaluate|test|generate|"
    r"predict|sample|demo|solver|learner|loop|pipeline|model|models|utils?)(_|$)"
)
_NEARER = 1.5  # steps from folder to folder that an entry point counts as nearer
Below = dict[str, list[list[tuple[float, str]]]]


def files_around(paths: Iterable[str], changed: Collection[str], most: int = MOST_FILES) -> list[str]:
    """At most `most` Python files that are near the changed ones or look like entry points, the likeliest first."""
    return _near(_below(paths), changed, most)


class Neighbours:
    """The files around each single file of a repository: those that a change of that file alone is reviewed with.

    `listed` are the paths of the repository and `read` gives their contents; both are asked when there is a question.
    """

    def __init__(self, listed: Callable[[], Iterable[str]], read: Callable[[str], bytes | None]) -> None:
        self._listed, self._read = listed, read
        self._folder: str | None = None
        self._nearest: list[str] = []
        self._contents: OrderedDict[str, bytes | None] = OrderedDict()

    @cached_property
    def _below(self) -> Below:
        return _below(self._listed())

    def __call__(self, path: str) -> dict[str, bytes]:
        """The files around the one at `path`, by path. Files of one folder share their neighbours, those of near ones many."""
        folder = path.rpartition("/")[0]
        if folder != self._folder:
            self._folder = folder
            self._nearest = _near(self._below, {f"{folder}/".lstrip("/") + "\0.py"}, MOST_FILES + 1)
        found: dict[str, bytes] = {}
        for other in [other for other in self._nearest if other != path][:MOST_FILES]:
            data = self._content(other)
            if data is not None and len(data) <= MOST_BYTES:
                found[other] = data
        return found

    def _content(self, path: str) -> bytes | None:
        contents = self._contents
        if path in contents:
            contents.move_to_end(path)
            return contents[path]
        data = contents[path] = self._read(path)
        if len(contents) > _KEPT:
            contents.popitem(last=False)
        return data


def _below(paths: Iterable[str]) -> Below:
    """Folder -> by the steps down from it: how much nearer each of the files there counts, and its path, the likeliest first.

    Tests, examples and the like call nothing of interest.
    """
    folders: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        if path.endswith(".py"):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append((name, path))
    found: Below = {}
    for folder, inside in folders.items():
        if path_kind(f"{folder}/_.py") is not None:
            continue
        files = [
            (-_NEARER if _ENTRY.search(name.lower().removesuffix(".py")) else 0.0, path)
            for name, path in inside
            if path_kind(name) is None
        ]
        for around, down in _depths(folder).items():
            by_steps = found.setdefault(around, [])
            by_steps += ([] for _ in range(len(by_steps), down + 1))
            by_steps[down] += files
    for by_steps in found.values():
        for files in by_steps:
            files.sort()
    return found


def _depths(start: str) -> dict[str, int]:
    """The folder and those around it, up to the root, with the steps from it to each."""
    parts = start.split("/") if start else []
    return {"/".join(parts[:depth]): len(parts) - depth for depth in range(len(parts), -1, -1)}


def _nearest(below: Below, start: str, besides: Collection[str], most: int) -> list[tuple[float, str]]:
    """Of the files that are the nearest to the folder, the steps to each and its path, in order."""
    ranked: list[tuple[float, str]] = []
    seen = None  # the files below this folder are nearer through it
    for folder, up in _depths(start).items():
        for down, files in enumerate(below.get(folder, ())):
            steps = up + down
            if len(ranked) >= most and steps - _NEARER > ranked[-1][0]:
                break  # what is farther away comes behind all of these
            found: list[tuple[float, str]] = []
            last = ranked[-1] if len(ranked) >= most else None
            for nearer, path in files:
                entry = (steps + nearer, path)
                if len(found) == most or (last is not None and entry >= last):
                    break  # as are those behind it, which are in order
                if path not in besides and (seen is None or not path.startswith(seen)):
                    found.append(entry)
            if found:
                ranked = sorted([*ranked, *found])[:most]
        seen = f"{folder}/"
    return ranked


def _near(below: Below, changed: Collection[str], most: int) -> list[str]:
    starts = {path.rpartition("/")[0] for path in changed if path.endswith(PYTHON)}
    found: dict[str, float] = {}
    for start in starts:
        for steps, path in _nearest(below, start, changed, most):
            found[path] = min(steps, found.get(path, steps))
    if not starts:  # all are as far away
        found = {path: nearer for files in below.get("", ()) for nearer, path in files}
    ranked = heapq.nsmallest(most, ((steps, path) for path, steps in found.items() if path not in changed))
    return [path for _, path in ranked]
