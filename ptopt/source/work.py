"""A limit on the work that one file may cost, so that no file can keep a reviewer busy.

Work is counted in visited nodes, not in seconds: the same file ends at the same place on every machine. What looks at
many nodes charges for them, before or while it does.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class WorkLimitError(Exception):
    """The file costs more work than it may."""


class Work:
    """What is left to spend, in visited nodes."""

    __slots__ = ("left", "spent")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.spent = 0

    def charge(self, nodes: int) -> None:
        """Raises WorkLimitError when less than that is left."""
        self.left -= nodes
        self.spent += nodes
        if self.left < 0:
            raise WorkLimitError


_current: ContextVar[Work] = ContextVar("work", default=Work(sys.maxsize))  # noqa: B039 (no limit, so shared)
current = _current.get  # the work of this review, of the thread and task that it runs in


@contextmanager
def limited(limit: int) -> Iterator[Work]:
    """Within the block, what is visited is charged to a new account of `limit` nodes."""
    work = Work(limit)
    token = _current.set(work)
    try:
        yield work
    finally:
        _current.reset(token)


@contextmanager
def no_cycle_collection() -> Iterator[None]:
    """Trees go away by reference counts; collecting cycles would only walk them, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
