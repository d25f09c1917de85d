"""What a profile shows, as tables that the terminal and Markdown lay out. Names come from the trace: each is marked as code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptopt.profiles.built import NOT_KNOWN, Built
from ptopt.profiles.frames import Place
from ptopt.profiles.lines import Line
from ptopt.profiles.profile import PARTS, TITLES, Profile
from ptopt.profiles.snapshot import Memory
from ptopt.profiles.verdict import TITLES as KINDS
from ptopt.profiles.verdict import targets, verdict
from ptopt.report.text import count, one_line

_LONGEST = 90
_LEAST = 0.001
_CANDIDATES = 4  # lines that are shown
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Name:
    """Text of the trace."""

    text: str


Cell = str | Name


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


_READS = (
    "A trace without a GPU cannot tell which of these would wait for one: reads of tensors on the device do, those of tensors "
    "that stay on the CPU (in a Dataset, the step counter of an optimizer) do not."
)


def headline(profile: Profile) -> tuple[Cell, str]:
    """The file, and what was recorded in it."""
    where = [profile.origin]
    if profile.devices:
        where.append(one_line(", ".join(dict.fromkeys(profile.devices))))
    elif profile.device == "cpu":
        where.append("CPU")
    if profile.rank is not None:
        where.append(f"rank {profile.rank}" + (f" of {profile.ranks}" if profile.ranks is not None else ""))
    mean, shortest, longest = profile.step_ms
    time = f"{count(profile.steps, 'step')} of {mean:.3g} ms ({shortest:.3g} to {longest:.3g})"
    return Name(profile.name), f"{', '.join(where)}; {time}"


def judgement(profile: Profile, built: Built = NOT_KNOWN) -> tuple[str, str, tuple[str, ...]]:
    """The verdict: its name, the evidence, what to change."""
    found = verdict(profile, built)
    return KINDS[found.kind], found.evidence, found.changes


def sections(profile: Profile, lines: Sequence[Line] = (), most: int = 10) -> Iterator[Section]:
    """The tables that have rows, each with `most` of them."""
    for section in _all(profile, lines, most):
        if section.rows:
            yield section


def _all(profile: Profile, lines: Sequence[Line], most: int) -> Iterator[Section]:
    gpu = profile.device == "cuda"
    named: Mapping[Place, Line] = {line.cost.place: line for line in lines}
    yield Section(
        "Where the step goes",
        ("part", "share"),
        tuple((_part(part, gpu), percent(profile.shares[part])) for part in PARTS if gpu or part != "copies"),
    )
    yield Section(
        "Targets",
        ("figure", "value", "target", "reached"),
        tuple(
            (
                t.name,
                percent(t.value),
                f"{'>=' if t.at_least else '<='} {t.limit:.0%}",
                "yes" if t.reached else "no",
            )
            for t in targets(profile)
        ),
    )
    yield _lines(profile, named, most)
    yield Section(
        "Why the GPU is idle",
        ("share", "gaps", "cause", "host", "where"),
        tuple(
            (percent(row.share), f"{row.number:,}", row.cause, _name(row.activity), _where(row.place, named))
            for row in profile.idle[:most]
            if row.share >= _LEAST
        ),
    )
    yield Section(
        "Where the host waits for the GPU" if gpu else "Tensors that the host reads",
        ("per step", "share", "call", "where"),
        tuple(
            (
                f"{row.per_step:.3g}",
                percent(row.share) if gpu else "",
                _name(row.what),
                _where(row.place, named),
            )
            for row in profile.waits[:most]
        ),
        "" if gpu else _READS,
    )
    yield Section(
        "Copies",
        ("per step", "MB per step", "share of time", "kind"),
        tuple(
            (f"{row.per_step:.3g}", f"{row.bytes_per_step / _MB:.3g}", percent(row.share), _name(row.what))
            for row in profile.copies[:most]
        ),
    )
    yield _kernels(profile, most)
    yield Section(
        "Operators on the host",
        ("own time", "with calls", "per step", "operator"),
        tuple(
            (percent(row.self_share), percent(row.total_share), f"{row.per_step:.3g}", _name(row.name))
            for row in profile.operators[:most]
            if row.self_share >= _LEAST
        ),
    )


def _lines(profile: Profile, named: Mapping[Place, Line], most: int) -> Section:
    rows = []
    for cost in profile.costs[:most]:
        if cost.share < _LEAST:
            break
        split = [f"idle {percent(cost.idle)}"] if cost.idle >= _LEAST else []
        split += [f"work {percent(cost.work)}"] if cost.work >= _LEAST else []
        split += [f"in its backward pass {percent(cost.backward)}"] if cost.backward >= _LEAST else []
        runs = cost.place.callee or cost.why or "Python"
        rows.append((percent(cost.share), _at(cost.place, named), _name(runs), ", ".join(split)))
    several = any(line.lines[1:] for line in named.values())
    note = (
        "Several lines: it is one of them; the trace names the function and the call, not the line."
        if several
        else ""
    )
    return Section("What to change first", ("share", "where", "what runs", "of which"), tuple(rows), note)


def _kernels(profile: Profile, most: int) -> Section:
    kernels = profile.kernels
    if kernels is None:
        return Section("Kernels", (), ())
    used = "not known" if kernels.tensor_cores is None else percent(kernels.tensor_cores)
    note = (
        f"{kernels.per_step:,.0f} kernels per step; {kernels.small:.0%} take less than 10 µs ({percent(kernels.small_time)} of the "
        f"time); products {percent(kernels.products)}, of these on tensor cores: {used}"
    )
    rows = tuple((percent(s), f"{n:.3g}", _name(name)) for name, s, n in kernels.slowest[:most])
    return Section("Kernels", ("share", "per step", "kernel"), rows, note + ".")


def memory_sections(memory: Memory, most: int = 10) -> Iterator[Section]:
    """The tables of a memory snapshot."""
    rows = [("reserved", _size(memory.reserved)), ("in use", _size(memory.allocated))]
    if memory.peak is not None:
        rows.append(("peak in the history", _size(memory.peak)))
    rows.append(
        ("free in pieces that are too small for the largest", percent(memory.fragmented) + " of reserved")
    )
    if memory.failures:
        rows.append(("out of memory in the history", count(memory.failures, "time")))
    yield Section("Memory of the GPU", ("", ""), tuple(rows))
    held = tuple(
        (_size(holder.bytes), f"{holder.blocks:,}", _line(holder.place)) for holder in memory.holders[:most]
    )
    title = "Held at the peak by" if memory.peak is not None else "Held by"
    if held:
        yield Section(title, ("size", "blocks", "line"), held)


def percent(share: float) -> str:
    return f"{share:.1%}"


def _size(number: int) -> str:
    return f"{number / _MB:,.1f} MB"


def _part(part: str, gpu: bool) -> str:
    if part == "idle":
        return "GPU idle" if gpu else "no operator runs (Python, other work)"
    return TITLES[part]


def _name(text: str) -> Name | str:
    return Name(cut(one_line(text))) if text else ""


def _where(place: Place | None, named: Mapping[Place, Line]) -> Name | str:
    """The place with what it called."""
    if place is None:
        return ""
    call = f": {place.callee}" if place.callee else ""
    return Name(cut(one_line(f"{_at(place, named).text}{call}")))


def _at(place: Place, named: Mapping[Place, Line]) -> Name:
    """`path:line` where the code says the line, else the function."""
    line = named.get(place)
    if line is None or not line.lines:
        return Name(f"{place.frame.path if line is None else line.path}, {place.frame.function}()")
    more = ", …" if len(line.lines) > _CANDIDATES else ""
    return Name(f"{line.path}:{', '.join(map(str, line.lines[:_CANDIDATES]))}{more}")


def _line(place: Place | None) -> Name | str:
    return (
        "no stack recorded"
        if place is None
        else Name(cut(f"{place.frame.path}:{place.frame.line} in {place.frame.function}"))
    )


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
