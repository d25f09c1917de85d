"""Where the analysis of a pull request's files runs: in this process, or in one that can be ended.

The reviewer is a pure function, so it can run anywhere. What a stranger wrote may keep it busy or break the interpreter;
a service runs it in a child process (`worker.isolation`), and the command line in its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AnalysisError(Exception):
    """The analysis did not end as it should. The text is the reason in "not reviewed: <path>: <reason>"."""


class Runner(Protocol):
    """Calls a function of a module with arguments and a result that are plain values."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Raises AnalysisError where the call was ended; what the function raises goes through."""


def in_process(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The runner of a process that works for one user: a plain call."""
    return function(*args, **kwargs)
