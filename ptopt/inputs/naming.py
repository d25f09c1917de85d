"""The texts of a repository that may name its configurations, read when somebody asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from ptopt.inputs.folders import walk_files
from ptopt.inputs.heads import Tree
from ptopt.project.naming import MOST_BYTES, Naming, may_name

_MOST_FILES = 20_000
_MOST_TOGETHER = 60_000_000  # bytes


class Texts:
    """Texts by path, as many as are kept."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._left = _MOST_TOGETHER

    def add(self, path: str, data: bytes | None) -> bool:
        """False: no more are kept. A text that is not there (None) names nothing, nor does a large one: it is data."""
        if data is None:
            return True
        self._left -= len(data)
        if self._left < 0 or len(self.files) >= _MOST_FILES:
            return False
        self.files[path] = data
        return True


def naming_of(read: Callable[[Texts], bool]) -> Naming:
    """What `read` adds may name a configuration; it returns whether that is all. Nothing is read before the first question."""
    return Naming(_WhenAsked(read), whole=None)


def naming_below(root: Path) -> Naming:
    """What below `root` may name a configuration; nothing is read before the first question."""

    def read(texts: Texts) -> bool:
        top = os.path.join(os.path.realpath(root), "")
        tree = Tree(top, MOST_BYTES)
        return all(
            texts.add(place.removeprefix(top).replace(os.sep, "/"), None if trouble else tree(place))
            for place, trouble in walk_files(top, lambda entry: may_name(entry.name) and entry.is_file())
        )

    return naming_of(read)


class _WhenAsked(Mapping[str, bytes]):
    """Path from the root -> content. `whole` says whether all were read."""

    def __init__(self, read: Callable[[Texts], bool]) -> None:
        self._reader = read

    @property
    def whole(self) -> bool:
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[dict[str, bytes], bool]:
        texts = Texts()
        whole = self._reader(texts)
        return texts.files, whole

    def __getitem__(self, path: str) -> bytes:
        return self._read[0][path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read[0])

    def __len__(self) -> int:
        return len(self._read[0])
