"""Calls on many items at once: order, back-pressure, failures, callers that share the threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ptopt.model.backends.parallel import Threads, ThreadsClosedError


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(3)
    yield threads
    threads.close()


def test_an_item_is_taken_when_a_thread_is_free(threads: Threads) -> None:
    taken: list[int] = []
    most = 0
    done = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    answered: list[int] = []

    def call(number: int) -> int:
        nonlocal most
        most = max(most, len(taken) - len(answered))
        done.acquire(timeout=0.002 * (number % 3))  # out of order
        answered.append(number)
        return number * number

    assert threads.map(call, items()) == [n * n for n in range(20)]
    assert most <= 4  # one may be taken between an answer and its count
    assert threads.map(call, []) == []


def test_after_a_failure_no_further_item_is_taken(threads: Threads) -> None:
    taken: list[int] = []
    hang = threading.Event()

    def call(number: int) -> int:
        taken.append(number)
        if number == 1:
            raise ValueError("one")
        hang.wait(10)  # is not waited for
        return number

    with pytest.raises(ValueError, match="one"):
        threads.map(call, range(100))
    hang.set()
    assert threads.map(str, range(5)) == ["0", "1", "2", "3", "4"]
    assert max(taken) <= 3


def test_items_may_end_with_an_exception(threads: Threads) -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        threads.map(str, items())


def test_a_caller_with_little_does_not_wait_for_one_with_much(threads: Threads) -> None:
    much: list[int] = []
    stop = threading.Event()

    def call(number: int) -> None:
        if not stop.is_set():
            much.append(number)
            threading.Event().wait(0.001)

    large = threading.Thread(target=threads.map, args=(call, range(5_000)))
    large.start()
    assert threads.map(str, range(6)) == list("012345")
    so_far = len(much)
    stop.set()
    large.join(30)
    assert so_far < 500


def test_when_it_is_closed_callers_that_wait_get_an_error() -> None:
    threads = Threads(2)
    begun, go = threading.Event(), threading.Event()
    ended: list[BaseException] = []

    def call(_: int) -> None:
        begun.set()
        go.wait(10)

    def run() -> None:
        try:
            threads.map(call, range(10))
        except ThreadsClosedError as error:
            ended.append(error)

    waiting = threading.Thread(target=run)
    waiting.start()
    begun.wait(10)
    threads.close()
    go.set()
    waiting.join(10)
    assert len(ended) == 1
    with pytest.raises(ThreadsClosedError):
        threads.map(str, [1])
