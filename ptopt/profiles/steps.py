"""The steps of a run: those that the profiler marked, else the time between two updates of the optimizer."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ptopt.profiles.phases import OPTIMIZER_STEP, STEP
from ptopt.profiles.trace import Kind, Lane, Trace


@dataclass(frozen=True)
class Steps:
    """Times in order that do not overlap, and the thread that runs them."""

    times: Sequence[tuple[float, float]]
    by: str
    thread: tuple[str, str] | None

    @property
    def start(self) -> float:
        return self.times[0][0]

    @property
    def end(self) -> float:
        return self.times[-1][1]

    @property
    def whole(self) -> float:
        return sum(end - start for start, end in self.times)

    def holds(self, time: float) -> bool:
        at = bisect_right(self.times, (time, float("inf")))
        return bool(at) and time < self.times[at - 1][1]


def find_steps(trace: Trace) -> Steps:
    """The steps of a trace that has events."""
    marked: list[tuple[tuple[str, str], list[tuple[float, float]]]] = []
    updated: list[tuple[tuple[str, str], list[tuple[float, float]]]] = []
    texts = trace.names.texts
    steps = {number for number, text in enumerate(texts) if text.startswith(STEP)}
    updates = {number for number, text in enumerate(texts) if text.startswith(OPTIMIZER_STEP)}
    for key, lane in trace.threads.items():
        marked.append((key, _spans(lane, steps)))
        updated.append((key, _spans(lane, updates)))
    thread, times = max(marked, key=lambda item: len(item[1]), default=(None, []))
    if times:
        return Steps(_apart(times), "ProfilerStep", thread)
    thread, ends = max(updated, key=lambda item: len(item[1]), default=(None, []))
    if len(ends) > 1:
        between = [(a[1], b[1]) for a, b in itertools.pairwise(ends) if a[1] < b[1]]
        if between:
            return Steps(_apart(between), "updates of the optimizer", thread)
    busiest = max(trace.threads.items(), key=lambda item: len(item[1]), default=(None, None))[0]
    return Steps([_extent(trace)], "none found: the whole trace counts as one", busiest)


def _spans(lane: Lane, names: set[int]) -> list[tuple[float, float]]:
    found = [
        (lane.start[at], lane.start[at] + lane.duration[at])
        for at in range(len(lane))
        if lane.kind[at] == Kind.ANNOTATION and lane.name[at] in names
    ]
    return sorted(found)


def _apart(times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without what overlaps an earlier one, and without empty ones."""
    found: list[tuple[float, float]] = []
    for start, end in times:
        begin = max(start, found[-1][1]) if found else start
        if begin < end:
            found.append((begin, end))
    return found or [(times[0][0], times[0][0] + 1.0)]


def _extent(trace: Trace) -> tuple[float, float]:
    lanes = [lane for lane in (*trace.threads.values(), *trace.streams.values()) if len(lane)]
    start = min(min(lane.start) for lane in lanes)
    end = max(a + b for lane in lanes for a, b in zip(lane.start, lane.duration, strict=True))
    return start, max(end, start + 1.0)
