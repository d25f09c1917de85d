"""What runs in a child process of `worker.isolation`. Imported once, by the server that the children are forked from.

Importing this module imports all that an analysis needs: a child may open no file.
"""

from __future__ import annotations

import codecs
import contextlib
import encodings.aliases
import errno
import importlib
import math
import os
import resource
import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ptopt import impact
from ptopt.ranker.model import default_ranker
from ptopt.rules import rules

T = TypeVar("T")

_LARGE = 150_000  # kilobytes; a fresh child has 50,000, which it shares with the others
_QUICK = 0.5  # seconds of processor time; the analysis of nearly every pull request takes less
_LOWEST = 19
_NICENESS = 10  # below what answers GitHub and people

# All that the functions below import when they run, and the modules of what is handed to them.
_NEEDED = """
bot.commands.explain bot.commands.safe_fixes configparser json packaging.requirements packaging.specifiers
packaging.version ptopt.config ptopt.model_review ptopt.project.facts ptopt.review ptopt.source.magics
ptopt.source.notebook tokenize
""".split()
for _name in _NEEDED:
    importlib.import_module(_name)
for _encoding in sorted({*encodings.aliases.aliases.values(), "utf_8_sig"}):
    with contextlib.suppress(LookupError):  # of other platforms
        codecs.lookup(_encoding)  # a source file may declare any
default_ranker()  # reads its data file
for _rule in rules():
    impact.of_rule(_rule.name)  # reads its data files


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
