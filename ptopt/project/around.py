"""Which files of a repository may answer questions about a file under review: chosen by path alone, so that nothing is read in vain."""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
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


def files_around(paths: Iterable[str], changed: Collection[str], most: int = MOST_FILES) -> list[str]:
    """At most `most` Python files that are near the changed ones or look like entry points, the likeliest first."""
    return _near(_by_folder(paths), changed, most)


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
    def _folders(self) -> Mapping[str, list[tuple[float, str]]]:
        return _by_folder(self._listed())

    def __call__(self, path: str) -> dict[str, bytes]:
        """The files around the one at `path`, by path. Files of one folder share their neighbours, those of near ones many."""
        folder = path.rpartition("/")[0]
        if folder != self._folder:
            self._folder = folder
            self._nearest = _near(self._folders, {f"{folder}/".lstrip("/") + "\0.py"}, MOST_FILES + 1)
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


def _by_folder(paths: Iterable[str]) -> dict[str, list[tuple[float, str]]]:
    """Folder -> how much nearer each of its files counts, and its path. Tests, examples and the like call nothing of interest."""
    found: dict[str, list[tuple[float, str]]] = {}
    for path in paths:
        if path.endswith(".py") and path_kind(path) is None:
            folder, _, name = path.rpartition("/")
            entry = bool(_ENTRY.search(PurePosixPath(name).stem.lower()))
            found.setdefault(folder, []).append((-_NEARER if entry else 0.0, path))
    return found


def _depths(start: str) -> dict[str, int]:
    """The folder and those around it, up to the root, with the steps from it to each."""
    parts = start.split("/") if start else []
    return {"/".join(parts[:depth]): len(parts) - depth for depth in range(len(parts) + 1)}


def _steps(folder: str, depths: Mapping[str, int]) -> int:
    """Steps from a folder up to the first that `depths` knows, and down from there: `folder_steps` of one start."""
    up = 0
    while folder not in depths:
        folder = folder.rpartition("/")[0]
        up += 1
    return up + depths[folder]


def _near(folders: Mapping[str, list[tuple[float, str]]], changed: Collection[str], most: int) -> list[str]:
    starts = [_depths(folder) for folder in {p.rpartition("/")[0] for p in changed if p.endswith(PYTHON)}]
    by_steps: defaultdict[int, list[str]] = defaultdict(list)
    for folder in folders:
        by_steps[min([_steps(folder, depths) for depths in starts], default=99)].append(folder)
    ranked: list[tuple[float, str]] = []
    for steps in sorted(by_steps):
        if len(ranked) >= most and steps - _NEARER > ranked[most - 1][0]:
            break  # what is farther away comes behind all of these
        ranked += [
            (steps + nearer, path)
            for folder in by_steps[steps]
            for nearer, path in folders[folder]
            if path not in changed
        ]
        ranked = heapq.nsmallest(most, ranked)
    return [path for _, path in ranked]
