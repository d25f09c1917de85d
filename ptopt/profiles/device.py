"""What a GPU did: how long kernels, communication and copies ran within the steps, and the gaps in which nothing did."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ptopt.profiles.host import phase_in
from ptopt.profiles.kernels import Work, kernel_work, on_tensor_cores
from ptopt.profiles.phases import Phase
from ptopt.profiles.trace import Kind, Lane, Trace

SMALL = 10.0  # microseconds: starting a kernel takes about as long
COPIES = 7  # beside the phases: copies between host and device
_IDLE = -1
# What an instant counts as where several things run at once: the first of these.
_PRIORITY = (
    Phase.BACKWARD,
    Phase.FORWARD,
    Phase.OPTIMIZER,
    Phase.DATA,
    Phase.NONE,
    Phase.COMMUNICATION,
    COPIES,
)
_BETWEEN = ("HtoD", "DtoH", "Host", "PtoP")
Launches: TypeAlias = Callable[
    [int], tuple[float, int]
]  # link -> when it was launched (-1: unknown), activity


@dataclass(slots=True)
class Gap:
    """A time in which the GPU had nothing to do, and when the next work for it was launched (-1: unknown)."""

    start: float
    end: float
    launched: float


@dataclass
class DeviceTime:
    """The time of one GPU within the steps, in microseconds; `busy` by what an instant counts as."""

    busy: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    gaps: list[Gap] = field(default_factory=list)
    kernels: int = 0
    small: int = 0
    kernel_time: float = 0.0
    small_time: float = 0.0
    work: dict[Work, float] = field(default_factory=lambda: defaultdict(float))
    tensor_cores: dict[bool | None, float] = field(default_factory=lambda: defaultdict(float))
    by_kernel: dict[int, list[float]] = field(default_factory=dict)  # name -> [time, number]
    copies: dict[int, list[float]] = field(default_factory=dict)  # name -> [time, number, bytes]
    launched: list[tuple[float, int, float]] = field(default_factory=list)  # when, activity, time on the GPU


def device_time(
    trace: Trace, lanes: Sequence[Lane], launches: Launches, start: float, end: float
) -> DeviceTime:
    """What the streams `lanes` of a GPU did from `start` to `end`."""
    result = DeviceTime()
    texts = trace.names.texts
    spans: list[tuple[float, float, int, float]] = []
    works: dict[int, Work] = {}
    for lane in lanes:
        for at in range(len(lane)):
            a, b = max(start, lane.start[at]), min(end, lane.start[at] + lane.duration[at])
            if b < a or not start <= lane.start[at] < end:
                continue
            name, kind, link = lane.name[at], lane.kind[at], lane.link[at]
            when, activity = launches(link)
            code: int = phase_in(activity)
            if kind == Kind.KERNEL:
                work = works.get(name)
                if work is None:
                    work = works[name] = kernel_work(texts[name])
                code = Phase.COMMUNICATION if work is Work.COMMUNICATION else code
                _count_kernel(result, name, work, b - a)
            elif kind == Kind.COPY:
                entry = result.copies.setdefault(name, [0.0, 0, 0])
                entry[0] += b - a
                entry[1] += 1
                entry[2] += trace.copied.get(link, 0)
                if any(text in texts[name] for text in _BETWEEN):
                    code = COPIES
            result.launched.append((when, activity, b - a))
            spans.append((a, b, code, when))
    for name, (time, _) in result.by_kernel.items():
        if works[name] is Work.COMPUTE:
            result.tensor_cores[on_tensor_cores(texts[name])] += time
    spans.sort()
    for a, b, code, when in _instants(spans, start, end):
        if code == _IDLE:
            result.gaps.append(Gap(a, b, when))
        else:
            result.busy[code] += b - a
    return result


def _count_kernel(result: DeviceTime, name: int, work: Work, time: float) -> None:
    result.kernels += 1
    result.kernel_time += time
    if time < SMALL:
        result.small += 1
        result.small_time += time
    result.work[work] += time
    entry = result.by_kernel.get(name)
    if entry is None:
        entry = result.by_kernel[name] = [0.0, 0]
    entry[0] += time
    entry[1] += 1


def _instants(
    spans: Sequence[tuple[float, float, int, float]], start: float, end: float
) -> Iterator[tuple[float, float, int, float]]:
    """The time from `start` to `end` in pieces: what each counts as, `_IDLE` where nothing runs, and when what follows
    was launched."""
    running: list[tuple[float, int]] = []  # a heap of (end, code)
    number: dict[int, int] = dict.fromkeys(_PRIORITY, 0)
    here, at = start, 0
    while here < end:
        while at < len(spans) and spans[at][0] <= here:
            heapq.heappush(running, (spans[at][1], spans[at][2]))
            number[spans[at][2]] += 1
            at += 1
        while running and running[0][0] <= here:
            number[heapq.heappop(running)[1]] -= 1
        following = spans[at][0] if at < len(spans) else end
        if not running:
            yield here, following, _IDLE, spans[at][3] if at < len(spans) else -1.0
            here = following
            continue
        until = min(following, running[0][0])
        yield here, until, next(code for code in _PRIORITY if number[code]), -1.0
        here = until
