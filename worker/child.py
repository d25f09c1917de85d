"""What runs in a child process of `worker.isolation`."""

from __future__ import annotations

import errno
import math
import os
import resource
import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_LARGE = 80_000  # kilobytes; a fresh child has 50,000, which it shares with the others, and ordinary files take it to 57,000
_QUICK = 0.5  # seconds of processor time; the analysis of nearly every pull request takes less
_LOWEST = 19
_NICENESS = 10  # below what answers GitHub and people


def confine(memory: int) -> None:
    """Limit this process for good: `memory` bytes of address space, no core dump, no file or socket beyond those open.

    It also takes the processor only when the rest of the service does not want it.
    """
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
    try:
        while True:  # fill the gaps below: what asks for a descriptor from now on gets none
            os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise


def call(
    seconds: float, function: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[T, bool]:
    """Call the function with `seconds` of processor time, after which the kernel ends the process.

    What it returns, and whether another process should take the place of this one: because it has become large, and gives
    nothing back, or because it was slow, and was made to wait for those that are quick.
    """
    slow = False

    def wait_for_others(*_: object) -> None:
        nonlocal slow
        slow = True
        os.nice(_LOWEST)

    signal.signal(signal.SIGVTALRM, wait_for_others)
    signal.setitimer(signal.ITIMER_VIRTUAL, _QUICK)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    try:
        result = function(*args, **kwargs)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return result, slow or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _LARGE
