"""What holds over time, as pieces that follow one another; and several of them side by side."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator


class Track:
    """A value from each start to the next; 0 before the first."""

    __slots__ = ("starts", "values")

    def __init__(self) -> None:
        self.starts = array("d")
        self.values = array("q")

    def put(self, start: float, value: int) -> None:
        """`value` holds from `start` on, which is not before the last start."""
        if self.starts and start <= self.starts[-1]:
            self.values[-1] = value
        elif not self.values or self.values[-1] != value:
            self.starts.append(start)
            self.values.append(value)

    def at(self, time: float) -> int:
        found = bisect_right(self.starts, time)
        return self.values[found - 1] if found else 0

    def between(self, start: float, end: float) -> Iterator[tuple[float, float, int]]:
        """The pieces of the time from `start` to `end`: (from, to, value)."""
        starts, values = self.starts, self.values
        at = bisect_right(starts, start)
        value = values[at - 1] if at else 0
        here = start
        while at < len(starts) and starts[at] < end:
            yield here, starts[at], value
            here, value = starts[at], values[at]
            at += 1
        if here < end:
            yield here, end, value


def side_by_side(
    one: Track, other: Track, start: float, end: float
) -> Iterator[tuple[float, float, int, int]]:
    """The pieces of the time from `start` to `end` in which neither changes: (from, to, value of one, of the other)."""
    for begin, until, value in one.between(start, end):
        for a, b, second in other.between(begin, until):
            yield a, b, value, second
