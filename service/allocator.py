"""Memory that a process has freed goes back to the system."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8  # parameters of glibc's mallopt(3)


def return_freed_memory() -> None:
    """Call once, before threads start.

    glibc gives each thread a heap of its own, and keeps what is freed there for the next request of that thread: a server
    that has once read some large files keeps their memory for ever. With two heaps, and texts of files outside of them,
    it does not. Other C libraries have no such setting, and need none.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter, value in ((_ARENAS, 2), (_MMAP_THRESHOLD, 1 << 16), (_TRIM_THRESHOLD, 1 << 17)):
        mallopt(parameter, value)
