"""The tables of a profile, from what was counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ptopt.profiles.device import DeviceTime
from ptopt.profiles.frames import Frames, Place
from ptopt.profiles.host import Thread, operator_in
from ptopt.profiles.kernels import Work, operator_work
from ptopt.profiles.phases import STEP
from ptopt.profiles.profile import PARTS, Copies, Cost, Kernels, Operator, Profile, Waiting
from ptopt.profiles.steps import Steps
from ptopt.profiles.trace import Names, Trace
from ptopt.profiles.tracks import Track

_MOST = 200  # rows of a table
_SLOWEST = 10


class Spent:
    """Time by stack and activity, and what it comes to by place of the user's code."""

    def __init__(self, names: Names, frames: Frames) -> None:
        self._texts = names.texts
        self._frames = frames
        self._time: dict[tuple[int, int], list[float]] = {}

    def add(self, stack: int, activity: int, length: float, *, idle: bool, backward: bool = False) -> None:
        """`backward`: it is of the backward pass of what ran there."""
        entry = self._time.get((stack, activity))
        if entry is None:
            entry = self._time[stack, activity] = [0.0, 0.0, 0.0]
        entry[not idle] += length
        if backward:
            entry[2] += length

    def operator(self, activity: int) -> str:
        number = operator_in(activity)
        return self._texts[number] if number >= 0 else ""

    def place(self, stack: int, activity: int) -> Place | None:
        """The innermost place; where nothing was called by name, with the operator that ran."""
        places = self._frames.places(stack)
        if not places:
            return None
        inner = places[0]
        return inner if inner.callee else Place(inner.frame, self.operator(activity))

    def costs(self, whole: float) -> tuple[Cost, ...]:
        own: dict[Place, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        inside: dict[Place, float] = defaultdict(float)
        why: dict[Place, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for (stack, activity), (idle, work, backward) in self._time.items():
            inner = self.place(stack, activity)
            if inner is None:
                continue
            own[inner][0] += idle
            own[inner][1] += work
            own[inner][2] += backward
            why[inner][self.operator(activity)] += idle + work
            for outer in set(self._frames.places(stack)[1:]) - {inner}:
                inside[outer] += idle + work
        found = [
            Cost(
                place,
                (own[place][0] + own[place][1]) / whole,
                own[place][0] / whole,
                own[place][1] / whole,
                inside[place] / whole,
                max(why[place], key=lambda name, p=place: why[p][name], default=""),  # type: ignore[misc]
                own[place][2] / whole,
            )
            for place in {*own, *inside}
        ]
        return tuple(sorted(found, key=lambda cost: (-cost.share, -cost.inside, cost.place)))

    def waits(
        self, calls: Iterable[tuple[float, float, int]], places: Track, steps: int, whole: float
    ) -> tuple[Waiting, ...]:
        rows: dict[tuple[str, Place | None], list[float]] = {}
        for start, end, activity in calls:
            entry = rows.setdefault(
                (self.operator(activity), self.place(places.at(start), activity)), [0.0, 0]
            )
            entry[0] += end - start
            entry[1] += 1
        found = [Waiting(what, place, n / steps, t / whole) for (what, place), (t, n) in rows.items()]
        return tuple(sorted(found, key=lambda row: (-row.share, -row.per_step)))[:_MOST]


def operators(names: Names, main: Thread, steps: Steps) -> tuple[Operator, ...]:
    """As `key_averages()` has them: the time of an operator itself, and with what it calls."""
    found = [
        Operator(
            names.texts[number],
            time / steps.whole,
            main.total_time[number] / steps.whole,
            main.calls[number] / len(steps.times),
        )
        for number, time in main.self_time.items()
        if not names.texts[number].startswith(STEP)
    ]
    return tuple(sorted(found, key=lambda row: (-row.self_share, row.name))[:_MOST])


def moved(rows: Iterable[Operator]) -> tuple[float, float]:
    """Of the operators' own time on the CPU the share of products, and of what moves data."""
    time: dict[Work, float] = defaultdict(float)
    for row in rows:
        time[operator_work(row.name)] += row.self_share
    known = time[Work.COMPUTE] + time[Work.MEMORY]
    return (time[Work.COMPUTE] / known, time[Work.MEMORY] / known) if known else (0.0, 0.0)


def copies(names: Names, time: DeviceTime, steps: int, whole: float) -> tuple[Copies, ...]:
    found = [
        Copies(names.texts[number], n / steps, size / steps, length / whole)
        for number, (length, n, size) in time.copies.items()
    ]
    return tuple(sorted(found, key=lambda row: -row.share))[:_MOST]


def kernels(names: Names, time: DeviceTime, steps: int) -> Kernels | None:
    if not time.kernels:
        return None
    ran = time.kernel_time or 1.0
    known = time.tensor_cores[True] + time.tensor_cores[False]
    slowest = sorted(time.by_kernel.items(), key=lambda item: -item[1][0])[:_SLOWEST]
    return Kernels(
        per_step=time.kernels / steps,
        small=time.small / time.kernels,
        small_time=time.small_time / ran,
        tensor_cores=time.tensor_cores[True] / known if known else None,
        products=time.work[Work.COMPUTE] / ran,
        moving=time.work[Work.MEMORY] / ran,
        slowest=tuple((names.texts[name], length / ran, n / steps) for name, (length, n) in slowest),
    )


def profile(
    trace: Trace, name: str, steps: Steps, on: str, parts: Mapping[str, float], whole: float, *,
    utilisation: float | None, moved: tuple[float, float] | None = None, **rest: Any,
) -> Profile:  # fmt: skip
    lengths = [end - start for start, end in steps.times]
    kernels_ = rest.get("kernels")
    products, moving = moved or ((kernels_.products, kernels_.moving) if kernels_ is not None else (0.0, 0.0))
    return Profile(
        name=name,
        origin=trace.origin,
        device=on,
        devices=trace.devices,
        rank=trace.rank,
        ranks=trace.ranks,
        steps=len(lengths),
        steps_by=steps.by,
        step_ms=(sum(lengths) / len(lengths) / 1e3, min(lengths) / 1e3, max(lengths) / 1e3),
        shares={part: parts.get(part, 0.0) / whole for part in PARTS},
        utilisation=utilisation,
        products=products,
        moving=moving,
        limits=tuple(_limits(trace, steps, on)),
        events=trace.events,
        **{"idle": (), "copies": (), "kernels": None, **rest},
    )


def _limits(trace: Trace, steps: Steps, on: str) -> Iterable[str]:
    if on == "cpu":
        yield (
            "no kernels of a GPU in this trace: idle is the time in which no operator ran (Python and other work of the host); "
            "gaps, copies to a device and tensor cores cannot be known"
        )
    if not trace.has_stacks:
        yield "recorded without stacks: no line can be named (with_stack=True records them)"
    else:
        yield "recorded with stacks: the profiler itself slows Python down, so that the host looks slower than it is"
    if steps.by != "ProfilerStep":
        yield f"steps are not marked (`profiler.step()` does it); {steps.by}"
    if trace.cut:
        yield f"the trace is not whole: {trace.cut}"
    if trace.skipped:
        yield f"{trace.skipped:,} events could not be read"
