"""Why a GPU had nothing to do, and which line of the forward pass the work of a backward pass comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptopt.profiles.device import Gap
from ptopt.profiles.host import Thread, operator_in, phase_in
from ptopt.profiles.phases import Phase
from ptopt.profiles.tracks import Track, side_by_side

_SLACK = 5.0  # microseconds between the end of the last kernel and that of the call that waited for it


class Source:
    """Where in the forward pass the work of the backward pass comes from."""

    def __init__(self, main: Thread, threads: Sequence[Thread], places: Track) -> None:
        self._made = main.made
        self._nodes = [thread.nodes for thread in threads if len(thread.nodes.starts)]
        self._places = places

    def of(self, activity: int, time: float) -> tuple[int, int] | None:
        """The stack and the activity that made what the backward pass runs at this time; None elsewhere."""
        if phase_in(activity) is not Phase.BACKWARD or not len(self._places.starts):
            return None
        for nodes in self._nodes:
            made = self._made.get(nodes.at(time))
            if made is not None:
                return self._places.at(made[0]), made[1]
        return None


class Causes:
    """Why the GPU had nothing to do."""

    def __init__(self, main: Thread, others: Sequence[Thread], places: Track) -> None:
        self._main = main.activities
        self._others = [thread.activities for thread in others]
        self._places = places
        waits = [w for thread in (main, *others) for w in thread.waits]
        self._waits = sorted(waits, key=lambda wait: wait.start)
        self._at = 0

    def of(self, gap: Gap) -> Iterator[tuple[str, int, int, float, float]]:
        """The parts of the gap: cause, stack, activity, start and length. Gaps come in order.

        Where the host had waited for the last kernel, it could not have launched the next one: the wait is the cause. Where
        the next one had been launched already, it is the device. Else it is what the host did meanwhile.
        """
        while self._at + 1 < len(self._waits) and self._waits[self._at + 1].start <= gap.start:
            self._at += 1
        wait = self._waits[self._at] if self._waits else None
        waited = wait is not None and wait.start <= gap.start <= wait.end + _SLACK
        queued = 0 <= gap.launched <= gap.start
        for a, b, activity, stack in side_by_side(self._main, self._places, gap.start, gap.end):
            for c, d, now in self._composed(activity, a, b):
                if phase_in(now) is Phase.DATA:
                    yield "data loading", stack, now, c, d - c
                elif waited and wait is not None:
                    yield "synchronisation", self._places.at(wait.start), wait.activity, c, d - c
                elif queued:
                    yield "launch latency", self._places.at(gap.launched), 0, c, d - c
                else:
                    yield "operators" if operator_in(now) >= 0 else "Python", stack, now, c, d - c

    def _composed(self, activity: int, start: float, end: float) -> Iterator[tuple[float, float, int]]:
        """What the main thread did, and where it did nothing, what the thread of the backward pass did."""
        if activity or not self._others:
            yield start, end, activity
        else:
            yield from self._others[0].between(start, end)
