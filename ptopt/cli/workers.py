"""A large tree is reviewed by several processes, each of which takes some files after the others.

They are forked: what all of them need is there, and only files go out and results come back. One process does it where
there is one core, where the system does not fork, and where PTOPT_JOBS is 1.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ptopt.cli.files import progress

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.file_result import FileResult
    from ptopt.findings import NotReviewed
    from ptopt.inspection import Inspection

    Item = ChangedFile | NotReviewed

T = TypeVar("T")

MANY = 200  # files from which on it is worth the start of processes
_TOGETHER = 40  # files that a process takes at once: those of a folder have much in common
_MOST = 8  # processes
_JOBS = "PTOPT_JOBS"
_CONTEXT = multiprocessing.get_context("fork") if sys.platform == "linux" else multiprocessing.get_context()


def processes() -> int:
    """How many processes may work at once: as many as there are cores, or as the environment says."""
    if sys.platform != "linux":
        return 1
    wanted = os.environ.get(_JOBS, "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else min(len(os.sched_getaffinity(0)), _MOST)


def inspect_in_processes(files: Iterable[Item], inspection: Inspection, /) -> list[FileResult]:
    """`inspect_files`, with progress, and by several processes for a large tree; the results are those of one, in the same order."""
    from ptopt.inspection import inspect_files

    items = iter(files)
    first = list(islice(items, MANY))
    every = chain(first, items)
    count = processes()
    together = inspection.limit_to_change or inspection.calibration is not None
    if count < 2 or len(first) < MANY or together:
        return inspect_files(progress(every, None), inspection)
    return _spread(every, inspection, count)


def aside(work: Callable[[], T], files: int) -> Callable[[], T]:
    """`work` in a process beside this one where there are many files, else at once; what comes back gives its result."""
    if files < MANY or processes() < 2:
        result = work()
        return lambda: result
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_send, args=(sender, work), daemon=True)  # ended with this one
    with _uninterrupted():
        process.start()
    sender.close()

    @functools.cache
    def wait() -> T:
        try:
            done, found = receiver.recv()
        except EOFError:
            raise _ended() from None
        process.join()
        if not done:
            raise found
        result: T = found
        return result

    return wait


def _spread(files: Iterable[Item], inspection: Inspection, count: int) -> list[FileResult]:
    from ptopt.parse_check import ParseCheck

    check = ParseCheck()  # here, where the files before each one are known, and so what is left of its limit
    found: list[FileResult] = []
    with _pool(count, functools.partial(_inspect, inspection)) as pool:
        with _uninterrupted():
            pool.submit(os.getpid)  # all are forked before there is a thread that shows progress
        waiting: deque[tuple[list[Item], Future[tuple[list[FileResult], set[str]]]]] = deque()

        def take() -> None:
            some, future = waiting.popleft()
            results, left = future.result()
            heads = {item.path: getattr(item, "head", None) for item in some}
            found.extend(check(r.path, heads[r.path] or b"") if r.path in left else r for r in results)

        try:
            for some in _by(progress(files, None), _TOGETHER):
                waiting.append((some, pool.submit(_given, some)))
                if len(waiting) > 2 * count:
                    take()
            while waiting:
                take()
        except BrokenProcessPool:
            raise _ended() from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _by(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """No interrupt reaches a process before it ignores them: one that is forked here has them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended() -> click.ClickException:
    return click.ClickException(f"a process of the review was ended; with {_JOBS}=1 there is one alone")


# -- in the processes ----------------------------------------------------------------------------------------

_work: Callable[..., Any] | None = None


def _pool(count: int, work: Callable[..., Any]) -> ProcessPoolExecutor:
    """Processes that have `work`, which need not be written down to reach them."""
    return ProcessPoolExecutor(count, mp_context=_CONTEXT, initializer=_begin, initargs=(work,))


def _begin(work: Callable[..., Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command itself ends them
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _send(sender: connection.Connection, work: Callable[[], object]) -> None:
    _begin(work)
    gc.disable()  # what it leaves goes with the process
    try:
        answer = (True, work())
    except Exception as error:
        answer = (False, error)
    sender.send(answer)


def _given(*args: Any) -> Any:
    if _work is None:
        raise RuntimeError("the process was started without work")
    return _work(*args)


def _inspect(inspection: Inspection, files: list[Item]) -> tuple[list[FileResult], set[str]]:
    """What is proposed on the files, and which of them no rule has a question on."""
    from ptopt.file_result import FileResult
    from ptopt.inspection import inspect_files

    unasked: set[str] = set()

    def note(path: str, head: bytes) -> FileResult:
        unasked.add(path)
        return FileResult(path)

    return inspect_files(files, inspection, note), unasked
