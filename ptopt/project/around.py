"""Which files of a repository may answer questions about a file under review: chosen by path alone, so that nothing is read in vain."""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath

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
Below = dict[tuple[str, int], list[tuple[float, str]]]


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
    """(Folder, steps down from it) -> how much nearer each of the files there counts, and its path, the likeliest first.

    Tests, examples and the like call nothing of interest.
    """
    found: Below = {}
    for path in paths:
        if path.endswith(".py") and path_kind(path) is None:
            folder, _, name = path.rpartition("/")
            entry = bool(_ENTRY.search(PurePosixPath(name).stem.lower()))
            for place in _depths(folder).items():
                found.setdefault(place, []).append((-_NEARER if entry else 0.0, path))
    for files in found.values():
        files.sort()
    return found


def _depths(start: str) -> dict[str, int]:
    """The folder and those around it, up to the root, with the steps from it to each."""
    parts = start.split("/") if start else []
    return {"/".join(parts[:depth]): len(parts) - depth for depth in range(len(parts), -1, -1)}


def _nearest(below: Below, start: str, besides: Collection[str], most: int) -> list[tuple[float, str]]:
    """Of the files that are the nearest to the folder, the steps to each and its path, in order."""
    ranked: list[tuple[float, str]] = []
    deepest = max((down for _, down in below), default=0)
    seen = None  # the files below this folder are nearer through it
    for folder, up in _depths(start).items():
        for down in range(deepest + 1):
            steps = up + down
            if len(ranked) >= most and steps - _NEARER > ranked[-1][0]:
                break  # what is farther away comes behind all of these
            others = (
                (steps + nearer, path)
                for nearer, path in below.get((folder, down), ())
                if path not in besides and (seen is None or not path.startswith(seen))
            )
            ranked = heapq.nsmallest(most, [*ranked, *islice(others, most)])
        seen = f"{folder}/"
    return ranked


def _near(below: Below, changed: Collection[str], most: int) -> list[str]:
    starts = {path.rpartition("/")[0] for path in changed if path.endswith(PYTHON)}
    found: dict[str, float] = {}
    for start in starts:
        for steps, path in _nearest(below, start, changed, most):
            found[path] = min(steps, found.get(path, steps))
    if not starts:  # all are as far away
        found = {path: nearer for (folder, _), files in below.items() if not folder for nearer, path in files}
    ranked = heapq.nsmallest(most, ((steps, path) for path, steps in found.items() if path not in changed))
    return [path for _, path in ranked]
