"""Takes from a process, for good, all but computing and the pipes that it has: by libseccomp and by limits."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Collection
from typing import Any

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LIBRARY = "libseccomp.so.2"
# Memory, locks within the process, clocks, and the descriptors that are open. No file is opened, no process, thread or
# socket made, no signal sent, no other process read; what is not listed fails with EPERM.
_CALLS = (
    "read write close fstat lseek mmap munmap mprotect mremap madvise brk futex clock_gettime clock_getres gettimeofday "
    "rt_sigreturn rt_sigprocmask rt_sigaction sigaltstack sched_yield sched_getaffinity getrandom getpid gettid "
    "restart_syscall exit exit_group"
).split()
_DUMPABLE = 4  # PR_SET_DUMPABLE
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PAGE = resource.getpagesize()


def available() -> bool:
    """Can this machine filter the system calls of a process?"""
    try:
        return bool(_library().seccomp_api_get() > 0)
    except (OSError, AttributeError):
        return False


def end_with_parent(signal_number: int) -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal_number, 0, 0, 0)


def confine(*, memory: int, seconds: int, keep: Collection[int]) -> None:
    """Leave this process the descriptors `keep`, `memory` bytes more than it has, and `seconds` of processor time.

    Raises OSError where that fails; the caller must then end the process.
    """
    library = _library()
    top = max(keep)
    for number in range(top + 1):
        if number not in keep:
            _close(number)
    os.closerange(top + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    used = int(_statm.split()[0]) * _PAGE
    for what, limit in (
        (resource.RLIMIT_AS, used + memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, top + 1),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    _filter(library)


def note_size() -> None:
    """Remember how large this process is: one that is confined cannot look."""
    global _statm
    with open("/proc/self/statm", encoding="ascii") as file:
        _statm = file.read()


_statm = "0"


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


def _library() -> Any:
    library = ctypes.CDLL(_LIBRARY, use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    return library


def _filter(library: Any) -> None:
    context = library.seccomp_init(_ERRNO | errno.EPERM)
    if not context:
        raise OSError(errno.ENOSYS, "no seccomp filter")
    for name in _CALLS:
        number = library.seccomp_syscall_resolve_name(name.encode("ascii"))
        if number >= 0 and library.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
            raise OSError(errno.EINVAL, "no seccomp rule")
    if library.seccomp_load(context) != 0:
        raise OSError(errno.EPERM, "the seccomp filter is not taken")
