"""The texts of a folder that may name its configurations, read when somebody asks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ptopt.inputs.folders import walk_files
from ptopt.inputs.heads import Tree
from ptopt.project.naming import MOST_BYTES, Naming, may_name

_MOST_FILES = 20_000
_MOST_TOGETHER = 60_000_000  # bytes


def naming_below(root: Path) -> Naming:
    """What below `root` may name a configuration; nothing is read before the first question."""
    return Naming(_Texts(root), whole=None)


class _Texts(Mapping[str, bytes]):
    """Path from the root -> content. `whole` says whether all were read."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def whole(self) -> bool:
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[dict[str, bytes], bool]:
        files: dict[str, bytes] = {}
        top = os.path.join(os.path.realpath(self._root), "")
        tree = Tree(top, MOST_BYTES)
        left = _MOST_TOGETHER
        for place, trouble in walk_files(top, lambda entry: may_name(entry.name) and entry.is_file()):
            name = place.removeprefix(top).replace(os.sep, "/")
            data = None if trouble else tree(place)
            if data is None:  # what is larger is data, and names nothing
                continue
            left -= len(data)
            if left < 0 or len(files) >= _MOST_FILES:
                return files, False
            files[name] = data
        return files, True

    def __getitem__(self, path: str) -> bytes:
        return self._read[0][path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read[0])

    def __len__(self) -> int:
        return len(self._read[0])
