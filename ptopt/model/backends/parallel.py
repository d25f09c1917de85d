"""Calls on many items, so many at once, of callers that share the threads fairly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

_P = TypeVar("_P")
_A = TypeVar("_A")


class ThreadsClosedError(Exception):
    """There are no threads any more."""


class Threads:
    """`number` calls at once, of all callers together."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="model")
        self._closed = threading.Event()

    def map(self, call: Callable[[_P], _A], items: Iterable[_P]) -> list[_A]:
        """The answers in order. An item is taken only when a thread is free for it, so `items` may be made, or end with
        an exception, meanwhile. After the first failure no further one is taken, and those under way are not waited for.
        Raises ThreadsClosedError.
        """
        return _Work(self._pool, self._closed, call, iter(items)).run(self._number)

    def close(self) -> None:
        """No further item is taken."""
        self._closed.set()
        self._pool.shutdown(wait=False)


class _Work(Generic[_P, _A]):
    """Up to so many calls under way. After each one the thread goes to the end of the queue, behind other callers."""

    def __init__(
        self, pool: ThreadPoolExecutor, closed: threading.Event, call: Callable[[_P], _A], items: Iterator[_P]
    ) -> None:
        self._pool, self._closed, self._call, self._items = pool, closed, call, items
        self._answers: dict[int, _A] = {}
        self._lock = threading.Lock()
        self._taken = self._active = 0
        self._failed: BaseException | None = None
        self._over = threading.Event()

    def run(self, number: int) -> list[_A]:
        for _ in range(number):
            with self._lock:
                self._active += 1
            self._submit()
        self._over.wait()
        if self._failed is not None:
            raise self._failed
        return [self._answers[at] for at in range(self._taken)]

    def _step(self) -> None:
        try:
            with self._lock:
                if self._failed is not None:
                    raise StopIteration
                if self._closed.is_set():
                    raise ThreadsClosedError
                item = next(self._items)
                at = self._taken
                self._taken += 1
            answer = self._call(item)
            with self._lock:
                self._answers[at] = answer
            self._submit()
        except StopIteration:
            self._end(None)
        except BaseException as error:  # raised in the caller
            self._end(error)

    def _submit(self) -> None:
        try:
            self._pool.submit(self._step)
        except RuntimeError:
            self._end(ThreadsClosedError())

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._failed = self._failed or error
            self._active -= 1
            if self._failed is not None or not self._active:
                self._over.set()
