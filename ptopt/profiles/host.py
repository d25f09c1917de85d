"""What a thread of the host did at each moment: its operators, and where its Python code stood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from ptopt.profiles.frames import Frames
from ptopt.profiles.phases import Phase, inside, phase_of
from ptopt.profiles.trace import Kind, Lane, Names
from ptopt.profiles.tracks import Track

_ON_STACK = frozenset({Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME})
_PYTHON = frozenset({Kind.PYTHON})
_PHASE = tuple(Phase)
_PHASES = 8  # an activity is (outermost operator + 1) * _PHASES + phase
# Annotations that count from end to end. Within others only what an operator takes does: the rest is Python.
_WHOLE = (Phase.DATA, Phase.OPTIMIZER)
_SYNCHRONISING = (
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
    "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize",
)  # fmt: skip
_READS = ("aten::_local_scalar_dense", "aten::nonzero")


def activity(operator: int, phase: Phase) -> int:
    """An outermost operator (its name's number; -1: none) and a phase as one number."""
    return (operator + 1) * _PHASES + phase


def phase_in(value: int) -> Phase:
    return _PHASE[value % _PHASES]


def operator_in(value: int) -> int:
    """The number of the name of the outermost operator; -1 where there is none."""
    return value // _PHASES - 1


@dataclass(slots=True)
class Wait:
    """A call that lets the host wait for the device."""

    start: float
    end: float
    name: int
    activity: int


@dataclass(slots=True)
class Thread:
    """One thread, understood."""

    activities: Track = field(default_factory=Track)
    launches: dict[int, tuple[float, int]] = field(
        default_factory=dict
    )  # link -> when it was called, activity
    waits: list[Wait] = field(default_factory=list)
    self_time: dict[int, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # name -> without what is inside
    total_time: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    reads: list[tuple[float, int]] = field(
        default_factory=list
    )  # when a tensor was read to the host, activity
    has_backward: bool = False
    made: dict[int, tuple[float, int]] = field(
        default_factory=dict
    )  # node of autograd -> when the forward pass made it, activity
    nodes: Track = field(default_factory=Track)  # the node that the backward pass runs


def understood(lane: Lane, names: Names, within: Callable[[float], bool]) -> Thread:
    """The operators of a thread. Times by name count what starts where `within` says so."""
    thread = Thread()
    texts = names.texts
    phases: dict[int, Phase] = {}
    synchronising = {number for number, text in enumerate(texts) if text in _SYNCHRONISING}
    reads = {number for number, text in enumerate(texts) if text in _READS}  # fmt: skip
    put, slack = thread.activities.put, _slack(lane)
    start, duration, kind, name, link = lane.start, lane.duration, lane.kind, lane.name, lane.link
    # An entry: end, phase inside, outermost operator, activity while nothing inside runs, index, time of what is inside,
    # whether it is within one of the same name.
    stack: list[list[float]] = []

    def leave(until: float) -> None:
        while stack and stack[-1][0] <= until + slack:
            end, _, _, _, index, children, repeats = stack.pop()
            at = int(index)
            if kind[at] != Kind.RUNTIME and within(start[at]):
                thread.self_time[name[at]] += max(0.0, duration[at] - children)
                if not repeats:
                    thread.total_time[name[at]] += duration[at]
                    thread.calls[name[at]] += 1
            put(end, int(stack[-1][3]) if stack else 0)
            if not stack or _PHASE[int(stack[-1][1])] is not Phase.BACKWARD:
                thread.nodes.put(end, 0)

    for at in lane.order(_ON_STACK):
        begin, number, what = start[at], name[at], kind[at]
        leave(begin)
        outer, top = (_PHASE[int(stack[-1][1])], int(stack[-1][2])) if stack else (Phase.NONE, -1)
        end = begin + duration[at]
        if what == Kind.RUNTIME:
            value = int(stack[-1][3]) if stack and top >= 0 else activity(number, outer)
            if number in synchronising:
                thread.waits.append(Wait(begin, end, number, value))
            else:
                thread.launches[link[at]] = (begin, value)
            stack.append([end, outer, top, value, at, 0.0, False])
            put(begin, value)
            continue
        own = phases.get(number)
        if own is None:
            own = phases[number] = phase_of(texts[number], what == Kind.ANNOTATION)
        phase = inside(outer, own)
        if what == Kind.OPERATOR:
            phase = phase or Phase.FORWARD
            top = number if top < 0 else top
            value = activity(top, phase)
            if phase is Phase.BACKWARD:
                thread.has_backward = True
                if outer is not Phase.BACKWARD:
                    thread.nodes.put(begin, link[at])
            elif link[at]:
                thread.made[link[at]] = (begin, value)  # of several the last: it is the one that counted on
            if number in reads:
                thread.reads.append((begin, value))
        else:
            value = activity(top, phase if top >= 0 or phase in _WHOLE else Phase.NONE)
        repeats = False
        if stack:
            repeats = name[int(stack[-1][4])] == number  # an operator that calls itself counts once
            stack[-1][5] += duration[at]
            end = min(end, stack[-1][0]) if what == Kind.OPERATOR else end
        stack.append([end, phase, top, value, at, 0.0, repeats])
        put(begin, value)
    leave(float("inf"))
    return thread


def _slack(lane: Lane) -> float:
    """So much later than the next one starts may an event seem to end: traces round to nanoseconds, and doubles that count
    from 1970 to a quarter of a microsecond."""
    return 0.5 if len(lane) and lane.start[0] > 1e14 else 0.0015


def python_places(lane: Lane, names: Names, frames: Frames) -> Track:
    """Where the Python code of a thread stood at each moment, as numbers of `frames`."""
    track = Track()
    start, duration, name = lane.start, lane.duration, lane.name
    ends: list[float] = []
    places: list[int] = [0]
    step, slack = frames.step, _slack(lane)
    for at in lane.order(_PYTHON):
        begin = start[at]
        while ends and ends[-1] <= begin + slack:
            end = ends.pop()
            places.pop()
            track.put(end, places[-1])
        place = step(places[-1], name[at])
        ends.append(begin + duration[at])
        places.append(place)
        track.put(begin, place)
    while ends:
        end = ends.pop()
        places.pop()
        track.put(end, places[-1])
    return track
