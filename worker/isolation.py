"""Child processes in which files of pull requests are analysed: bounded, without secrets or network, and expendable.

A child is forked from a server process that has the reviewer imported and an empty environment. So starting one takes
milliseconds, and nothing of the worker (settings, tokens, connections) is in its memory. What takes too long or too much
memory ends with its child; the next call gets a new one. Each call has a child to itself: it waits for no other call, and
no other call loses its result when that child is killed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from concurrent.futures import TimeoutError as TimedOutError
from contextlib import nullcontext
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import AuthenticationString  # type: ignore[attr-defined]
from typing import ParamSpec, TypeVar

import structlog
from pebble import ProcessExpired, ProcessPool

from ptopt.ranker import model as ranker
from ptopt.runner import AnalysisError
from worker import child

P = ParamSpec("P")
T = TypeVar("T")

TOO_LONG = "skipped: took too long"
TOO_MUCH_MEMORY = "skipped: took too much memory"
CRASHED = "skipped: the analysis crashed"
REASONS = {TOO_LONG: "time", TOO_MUCH_MEMORY: "memory", CRASHED: "crash"}
# A child may be killed from outside, by an operator, or by the kernel for another's memory. After so many tries, and as
# many seconds as a call may take, that is given up.
_TRIES = 8
_CRASHES = 2  # what breaks the interpreter does so again
_PAUSE = 0.1  # seconds before the second try, then longer each time
_GRACE = 60.0  # seconds for a child to start, on a busy machine: the pool counts from when a call begins
_LOOK = 1.0  # seconds between two looks at whether the pool lives
_LARGE = 100_000  # bytes of what a call is given: its child may take 150 MB, where most take 60
_PRELOADED = "worker.preload"
_TASKS = 200  # after which a child is replaced, so that no leak grows for ever
_HARMLESS = (
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "VIRTUAL_ENV",
    "PYTHONHASHSEED",
    ranker.ENVIRONMENT,
)
_log = structlog.get_logger(__name__)
_starting = threading.Lock()


class Isolation:
    """A runner (`ptopt.runner.Runner`) over child processes, one for each call at a time. Safe to share between threads."""

    def __init__(
        self,
        *,
        seconds: float,
        memory: int,
        large_at_once: int | None = None,
        on_ended: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`seconds` of time, and of processor time, for a call; `memory` bytes of address space for a child.

        Of calls with more than 100 kB of arguments `large_at_once` run at the same time, by default half as many as there
        are cores: the memory of those that run together adds up, and anyone can open large pull requests.
        `on_ended` is called with the name of the reason for each call that is ended.
        """
        self._seconds = seconds
        self._on_ended = on_ended
        self._memory = memory
        self._free: list[ProcessPool] = []  # of one child each; the last one used is the next
        self._busy: set[ProcessPool] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._large = threading.Semaphore(large_at_once or max(1, len(os.sched_getaffinity(0)) // 2))

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._large if len(pickle.dumps((args, kwargs))) > _LARGE else nullcontext():
            return self._run(function, *args, **kwargs)

    def _run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        end = time.monotonic() + self._seconds
        for attempt in itertools.count(1):
            pool = self._take()
            alive = False
            try:
                task = pool.schedule(
                    child.call, args=(self._seconds, function, args, kwargs), timeout=self._seconds
                )
                answer: tuple[T, bool] = _result(pool, task, self._seconds + _GRACE)
                result, large = answer
                alive = not large
            except TimedOutError:
                raise self._ended(TOO_LONG) from None
            except MemoryError:
                raise self._ended(TOO_MUCH_MEMORY) from None
            except RecursionError:
                raise self._ended(CRASHED) from None
            except ProcessExpired as error:
                if error.exitcode == -signal.SIGXCPU:
                    raise self._ended(TOO_LONG) from None
                _log.warning("child process ended", exit_code=error.exitcode, attempt=attempt)
                if error.exitcode != -signal.SIGKILL and attempt >= _CRASHES:
                    break
            except (BrokenExecutor, CancelledError, RuntimeError) as error:
                if pool.active:  # raised by the function
                    alive = True
                    raise
                _log.warning("child process starts again", error=str(error), attempt=attempt)
            except BaseException:
                alive = pool.active
                raise
            else:
                return result
            finally:
                self._give_back(pool, alive)
            if attempt >= _TRIES and time.monotonic() > end:
                break
            time.sleep(_PAUSE * min(attempt, _TRIES))
        raise self._ended(CRASHED)

    def start(self) -> None:
        """Start the first child now rather than at the first call."""
        pool = self._take()
        self._give_back(pool, pool.active)

    def close(self) -> None:
        """End the children, for good. A call that runs, and any later one, raises AnalysisError."""
        with self._lock:
            self._closed = True
            pools = [*self._free, *self._busy]
            self._free.clear()
        for pool in pools:
            _end(pool)

    def _take(self) -> ProcessPool:
        with self._lock:
            if self._closed:
                raise AnalysisError(CRASHED)
            pool = self._free.pop() if self._free else self._new()
            self._busy.add(pool)
            return pool

    def _give_back(self, pool: ProcessPool, alive: bool) -> None:
        """A child that was killed may have left half an answer in the pipe of its pool: that is not used again."""
        with self._lock:
            self._busy.discard(pool)
            if alive and not self._closed:
                self._free.append(pool)
                return
        _end(pool)

    def _ended(self, reason: str) -> AnalysisError:
        _log.warning("analysis ended", reason=reason)
        self._on_ended(REASONS[reason])
        return AnalysisError(reason)

    def _new(self) -> ProcessPool:
        return ProcessPool(
            max_workers=1,
            max_tasks=_TASKS,
            initializer=child.confine,
            initargs=(self._memory,),
            context=_fork_server(),
        )


def _result(pool: ProcessPool, task: Future[T], seconds: float) -> T:
    """What the child gives back. A pool that breaks just when it is given a task forgets the task: it is looked at."""
    end = time.monotonic() + seconds
    while not wait([task], _LOOK).done:
        if not pool.active and not wait([task], _LOOK).done:
            raise BrokenExecutor("the child ended before it began")
        if time.monotonic() > end:
            raise TimedOutError
    return task.result()


def _end(pool: ProcessPool) -> None:
    """Kill the child. Nobody waits for the pool's threads: one may read the rest of an answer that never comes."""
    pool.stop()  # type: ignore[no-untyped-call]
    threading.Thread(target=pool.join, name="ending-pool", daemon=True).start()


def _fork_server() -> ForkServerContext:
    """The process that children are forked from, started once, with nothing of our environment in it."""
    context = multiprocessing.get_context("forkserver")
    with _starting:
        # Celery marks its worker processes as daemons, which may have no children, and gives them a key of a class of its
        # own, which cannot be handed to one. Ours end by themselves when the pipe to this process closes.
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
        config["daemon"] = False
        config["authkey"] = AuthenticationString(config["authkey"])
        context.set_forkserver_preload([child.__name__, _PRELOADED])
        ours = dict(os.environ)
        try:
            os.environ.clear()
            os.environ.update({name: ours[name] for name in _HARMLESS if name in ours})
            forkserver.ensure_running()
        finally:
            os.environ.update(ours)
    return context
