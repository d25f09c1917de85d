"""The plan: what to do in which order, with effort and range; and what is good already."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ptopt.audit.advice import ADVICE, HAS_OPTION
from ptopt.audit.arguments import without_commands
from ptopt.audit.measures.copies import CAST_FIRST
from ptopt.audit.measures.precision import HALF_WEIGHTS
from ptopt.audit.values import (
    EntryPoint,
    Gap,
    Good,
    Level,
    Measure,
    Phase,
    Place,
    State,
    Step,
    Weighed,
    measure_of,
)
from ptopt.audit.weigh import of_table, without_lines
from ptopt.findings import Finding, Safety

_PHASES = (
    ("Quick wins", "a line or a flag each; half a day with a run to compare"),
    ("Next", "an hour to an afternoon each"),
    ("Larger changes", "days; measure first whether they are needed"),
)
_MOST_STEPS = 12  # of findings, in one phase
_MOST_PATHS = 6  # of a command
# What shows that they are off (the backward pass, some convolution) is not where one would work.
_ELSEWHERE = frozenset({"compile", "channels_last", "tf32"})
_MOST_SCRIPTS = 3
SUGGESTED = "a suggested edit"
_GOOD = (
    "precision", "attention", "compile", "workers", "pin_memory", "persistent_workers", "non_blocking", "padding",
    "fused_optimizer", "accumulation", "gradient_checkpointing", "distributed", "channels_last", "cudnn_benchmark",
    "evaluation", "saving", "monitoring", "tf32",
)  # fmt: skip
_SHARED = "forward and backward pass"
_SHARE = (
    "A factor holds for the part that it names. Where that part is a small share of the step, the step gains little: profile "
    "first (`torch.profiler`), then change what the profile shows."
)


def how_to_read(gaps: tuple[Gap, ...]) -> tuple[str, ...]:
    """What to know of the ranges of missing measures, where there are some."""
    if not gaps:
        return ()
    titles = list(dict.fromkeys(gap.title for gap in gaps if ADVICE[gap.key].speeds_up == _SHARED))
    if len(titles) < 2:
        return (_SHARE,)
    named = f"{', '.join(titles[:-1])} and {titles[-1]}"
    overlap = (
        f"Gains on the same part of a step overlap: {named} {'both' if len(titles) == 2 else 'all'} shorten "
        f"the {_SHARED}. They are not multiplied here; measure after each change."
    )
    return (overlap, _SHARE)


def plan(
    gaps: tuple[Gap, ...], findings: tuple[Weighed, ...], in_table: Iterable[Finding] = ()
) -> tuple[Phase, ...]:
    """Steps by size of the change; in a phase the heaviest first. `in_table`: findings for which a row of a table stands."""
    order = list(Level)
    found: dict[str, _Entry] = {}
    in_table = tuple(in_table)
    for gap in gaps:
        advice = ADVICE[gap.key]
        elsewhere = gap.key in _ELSEWHERE and not gap.action.startswith(HAS_OPTION)
        action = f"{_in(gap)}{gap.title}: {gap.action}" if elsewhere else f"{gap.title}: {gap.action}"
        step = Step(
            action, gap.effort or advice.effort, advice.speeds_up, "", gap.impact, () if elsewhere else gap.evidence,
            _command(of_table(in_table, gap)),
        )  # fmt: skip
        found[step.title] = _Entry(order.index(gap.level), advice.phase - 1, step)
    groups: dict[str, list[Weighed]] = {}
    for weighed in findings:
        said = without_lines(f"{weighed.finding.rule} {weighed.finding.name}: {weighed.finding.message}")
        groups.setdefault(said, []).append(weighed)
    for said, group in groups.items():
        found[said] = _of_findings(group)
    phases = []
    for at, (title, effort) in enumerate(_PHASES):
        ranked = sorted((e for e in found.values() if e.phase == at), key=lambda e: e.level)
        if ranked:
            phases.append(Phase(title, effort, tuple(e.step for e in ranked)[:_MOST_STEPS]))
    return tuple(phases)


def _in(gap: Gap) -> str:
    """`train.py: `: where no line can be named, the scripts."""
    more = len(gap.entries) - _MOST_SCRIPTS
    return ", ".join(gap.entries[:_MOST_SCRIPTS]) + (f" and {more} more" if more > 0 else "") + ": "


@dataclass(frozen=True, slots=True)
class _Entry:
    level: int  # 0: the heaviest
    phase: int
    step: Step


def _of_findings(group: list[Weighed]) -> _Entry:
    """One step of findings that say the same, of which some may weigh more; quick where each of them has a fix."""
    group = sorted(group, key=lambda weighed: list(Level).index(weighed.level))
    first = group[0].finding
    every = [finding for weighed in group for finding in (weighed.finding, *weighed.others)]
    quick = all(map(_is_fixed, every))
    places = [
        place
        for weighed in group
        for place in (Place(weighed.finding.path, weighed.finding.span.start), *weighed.also)
    ]
    step = Step(
        f"{first.rule} {first.name}: {first.message}", SUGGESTED if quick else "an hour", _part(first, "time"),
        _part(first, "memory"), first.impact, tuple(dict.fromkeys(places)), _command(every),
    )  # fmt: skip
    return _Entry(list(Level).index(group[0].level), 0 if quick else 1, step)


def _is_fixed(finding: Finding) -> bool:
    """Does it have a fix that can be written?"""
    return finding.fix is not None and finding.fix.safety is not Safety.DISPLAY


def _command(findings: Iterable[Finding]) -> str:
    """`ptopt fix --unsafe --select PTO201 train.py`, in the folder that was audited; "" where nothing has a fix."""
    every = tuple(findings)
    fixed = [finding for finding in every if _is_fixed(finding)]
    if not fixed:
        return ""
    unsafe = any(f.fix is not None and f.fix.safety is Safety.UNSAFE for f in fixed)
    # A comment may carry the fix of another rule: it is applied where that one is selected.
    rules = ",".join(dict.fromkeys(finding.fix_rule or finding.rule for finding in fixed))
    paths = list(dict.fromkeys(finding.path for finding in every))
    named = paths if len(paths) <= _MOST_PATHS else []
    parts = ["ptopt fix", *(["--unsafe"] if unsafe else []), f"--select {rules}", *map(shlex.quote, named)]
    return " ".join(parts)


def _part(finding: Finding, gain: str) -> str:
    """What takes less time, or memory, as far as a figure says so; "" where none does."""
    return next((impact.scope for impact in finding.impact if impact.gain == gain), "")


def _waits(measure: Measure) -> bool:
    """Does the training stand still while a checkpoint is written?"""
    return measure.key == "saving" and not measure.by_model and "asynchronous" not in measure.detail


def _is_half(measure: Measure) -> bool:
    """Are the weights themselves in half precision? It saves memory and time, and may lose small updates."""
    return measure.key == "precision" and measure.detail.startswith(HALF_WEIGHTS)


def good(entries: tuple[EntryPoint, ...]) -> tuple[Good, ...]:
    """The measures that are on, and where."""
    found = []
    for key in _GOOD:
        on = [
            (entry, m)
            for entry in entries
            if (m := measure_of(entry, key)) is not None
            and m.state is State.ON
            and not (_waits(m) or _is_half(m) or CAST_FIRST in m.detail)
        ]
        if on:
            details = tuple(dict.fromkeys(without_commands(m.detail) for _, m in on))[:3]
            found.append(Good(on[0][1].title, details, tuple(dict.fromkeys(entry.path for entry, _ in on))))
    return tuple(found)
