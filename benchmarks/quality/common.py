"""What the commands share: JSON lines, random order, processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def read_rows(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The objects of files of JSON lines."""
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            if line.strip():
                yield json.loads(line)


def in_random_order(items: Iterable[_Item], seed: int) -> list[_Item]:
    """The same order for the same items and seed, whatever order they come in."""
    return sorted(items, key=lambda item: sha256(json.dumps([seed, item]).encode()).digest())


def in_processes(
    function: Callable[[_Item], _Result], items: Sequence[_Item], jobs: int
) -> Iterator[_Result]:
    """`map`, in so many processes."""
    if jobs <= 1:
        yield from map(function, items)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(function, items)
