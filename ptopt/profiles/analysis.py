"""From a trace to a profile: the parts of a step, the gaps of the GPU and their causes, the places in the code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ptopt.profiles import device, host, tables
from ptopt.profiles.causes import Causes, Source
from ptopt.profiles.device import COPIES, DeviceTime
from ptopt.profiles.frames import Frames
from ptopt.profiles.host import Thread
from ptopt.profiles.phases import Phase
from ptopt.profiles.profile import Idle, Profile
from ptopt.profiles.steps import Steps, find_steps
from ptopt.profiles.tables import Spent
from ptopt.profiles.trace import Kind, Lane, Trace
from ptopt.profiles.tracks import Track, side_by_side

_PART = {
    Phase.DATA: "data",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.COMMUNICATION: "communication",
    Phase.NONE: "idle",
}


def analysed(trace: Trace, name: str, own: Collection[str] = ()) -> Profile:
    """Where the time of a trace went. `own` are paths, as the trace names them, that are the user's whatever they look like."""
    steps = find_steps(trace)
    frames = Frames(trace.names, own)
    threads = {
        key: host.understood(lane, trace.names, steps.holds)
        for key, lane in trace.threads.items()
        if key == steps.thread or any(k in (Kind.OPERATOR, Kind.RUNTIME) for k in set(lane.kind))
    }
    main = threads.get(steps.thread, Thread()) if steps.thread is not None else Thread()
    places = Track()
    if steps.thread is not None and trace.has_stacks:
        places = host.python_places(trace.threads[steps.thread], trace.names, frames)
    lanes = _busiest(trace)
    spent = Spent(trace.names, frames)
    if lanes:
        return _on_gpu(trace, name, steps, main, threads, places, lanes, spent)
    return _on_cpu(trace, name, steps, main, places, spent)


def _busiest(trace: Trace) -> list[Lane]:
    """The streams of the device that works most."""
    time: dict[str, float] = defaultdict(float)
    for (number, _), lane in trace.streams.items():
        time[number] += sum(lane.duration)
    if not time:
        return []
    chosen = max(time, key=lambda number: time[number])
    return [lane for (number, _), lane in trace.streams.items() if number == chosen]


# -- without a GPU -------------------------------------------------------------------------------------------


def _on_cpu(trace: Trace, name: str, steps: Steps, main: Thread, places: Track, spent: Spent) -> Profile:
    parts: dict[str, float] = defaultdict(float)
    source = Source(main, [main], places)
    for start, end in steps.times:
        for a, b, activity, stack in side_by_side(main.activities, places, start, end):
            phase = host.phase_in(activity)
            parts[_PART[phase]] += b - a
            made = source.of(activity, (a + b) / 2)
            spent.add(
                *(made or (stack, activity)), b - a, idle=phase is Phase.NONE, backward=made is not None
            )
    reads = ((time, time, activity) for time, activity in main.reads if steps.holds(time))
    operators = tables.operators(trace.names, main, steps)
    return tables.profile(
        trace, name, steps, "cpu", parts, steps.whole,
        utilisation=None,
        costs=spent.costs(steps.whole),
        waits=spent.waits(reads, places, len(steps.times), steps.whole),
        operators=operators,
        moved=tables.moved(operators),
    )  # fmt: skip


# -- on a GPU ------------------------------------------------------------------------------------------------


def _on_gpu(
    trace: Trace, name: str, steps: Steps, main: Thread, threads: dict[tuple[str, str], Thread],
    places: Track, lanes: list[Lane], spent: Spent,
) -> Profile:  # fmt: skip
    def launches(link: int) -> tuple[float, int]:
        for thread in threads.values():
            found = thread.launches.get(link)
            if found is not None:
                return found
        return -1.0, 0

    time = device.device_time(trace, lanes, launches, steps.start, steps.end)
    whole = steps.end - steps.start
    busy = time.busy
    parts: dict[str, float] = {
        "forward": busy[Phase.FORWARD] + busy[Phase.NONE] + busy[Phase.DATA],
        "backward": busy[Phase.BACKWARD],
        "optimizer": busy[Phase.OPTIMIZER],
        "communication": busy[Phase.COMMUNICATION],
        "copies": busy[COPIES],
        "data": 0.0,
        "idle": 0.0,
    }
    others = [thread for thread in threads.values() if thread is not main and thread.has_backward]
    source = Source(main, [main, *others], places)
    for when, activity, duration in time.launched:
        made = source.of(activity, when)
        stack = places.at(when) if when >= 0 else 0
        spent.add(*(made or (stack, activity)), duration, idle=False, backward=made is not None)
    causes = Causes(main, others, places)
    idle: dict[tuple[str, int, int, int], list[float]] = {}
    for number, gap in enumerate(time.gaps):
        for cause, stack, activity, start, length in causes.of(gap):
            parts["data" if cause == "data loading" else "idle"] += length
            made = source.of(activity, start + length / 2)
            at = made or (stack, activity)
            spent.add(*at, length, idle=True, backward=made is not None)
            key = (cause, activity, *at)
            entry = idle.get(key)
            if entry is None:
                entry = idle[key] = [0.0, 0, -1]
            entry[0] += length
            if entry[2] != number:  # a gap counts once
                entry[1] += 1
                entry[2] = number
    waits = (
        (wait.start, wait.end, wait.activity)
        for thread in (main, *others)
        for wait in thread.waits
        if steps.holds(wait.start)
    )
    return tables.profile(
        trace, name, steps, "cuda", parts, whole,
        utilisation=_kernels_ran(time) / whole,
        costs=spent.costs(whole),
        idle=_rows(idle, spent, whole),
        waits=spent.waits(waits, places, len(steps.times), whole),
        copies=tables.copies(trace.names, time, len(steps.times), whole),
        kernels=tables.kernels(trace.names, time, len(steps.times)),
        operators=tables.operators(trace.names, main, steps),
    )  # fmt: skip


def _kernels_ran(time: DeviceTime) -> float:
    return sum(length for code, length in time.busy.items() if code != COPIES)


def _rows(idle: dict[tuple[str, int, int, int], list[float]], spent: Spent, whole: float) -> tuple[Idle, ...]:
    rows: dict[tuple[str, str, object], list[float]] = {}
    for (cause, activity, *at), (length, number, _) in idle.items():
        key = (cause, spent.operator(activity), spent.place(*at))
        entry = rows.setdefault(key, [0.0, 0])
        entry[0] += length
        entry[1] += number
    found = [
        Idle(cause, operator, place, length / whole, int(number))  # type: ignore[arg-type]
        for (cause, operator, place), (length, number) in rows.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.share))
