"""The plan: what to do in which order, with effort and range; and what is good already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ptopt.audit.advice import ADVICE, measure_of
from ptopt.audit.measures.precision import HALF_WEIGHTS
from ptopt.audit.values import EntryPoint, Gap, Good, Level, Measure, Phase, Place, State, Step, Weighed
from ptopt.findings import Finding, Safety

_PHASES = (
    ("Quick wins", "a line or a flag each; half a day with a run to compare"),
    ("Next", "an hour to an afternoon each"),
    ("Larger changes", "days; measure first whether they are needed"),
)
_MOST_STEPS = 12  # of findings, in one phase
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
        f"Ranges that speed up the same part of a step overlap: {named} {'both' if len(titles) == 2 else 'all'} shorten "
        f"the {_SHARED}. They are not multiplied here; measure after each change."
    )
    return (overlap, _SHARE)


def plan(gaps: tuple[Gap, ...], findings: tuple[Weighed, ...]) -> tuple[Phase, ...]:
    """Steps by size of the change; in a phase the heaviest first."""
    steps: list[list[tuple[int, Step]]] = [[], [], []]
    order = list(Level)
    for gap in gaps:
        advice = ADVICE[gap.key]
        at = advice.phase - 1
        step = Step(
            f"{gap.title}: {gap.action}", advice.effort, advice.speeds_up, "", gap.impact, gap.evidence
        )
        steps[at].append((order.index(gap.level), step))
    for weighed in findings:
        finding = weighed.finding
        quick = finding.fix is not None and finding.fix.safety is not Safety.DISPLAY
        place = Place(finding.path, finding.span.start)
        step = Step(f"{finding.rule} {finding.name}: {finding.message}", "a suggested edit" if quick else "an hour",
                    _part(finding, "time"), _part(finding, "memory"), finding.impact, (place, *weighed.also))  # fmt: skip
        steps[0 if quick else 1].append((order.index(weighed.level), step))
    phases = []
    for (title, effort), found in zip(_PHASES, steps, strict=True):
        if found:
            ranked = _each_once(step for _, step in sorted(found, key=lambda pair: pair[0]))
            phases.append(Phase(title, effort, ranked[:_MOST_STEPS]))
    return tuple(phases)


def _part(finding: Finding, gain: str) -> str:
    """What takes less time, or memory, as far as a figure says so; "" where none does."""
    return next((impact.scope for impact in finding.impact if impact.gain == gain), "")


def _each_once(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps that say the same, as those of findings of which one weighs more, are one with the places of all."""
    found: dict[str, Step] = {}
    for step in steps:
        first = found.get(step.title)
        same = (
            step
            if first is None
            else replace(first, places=tuple(dict.fromkeys((*first.places, *step.places))))
        )
        found[step.title] = same
    return tuple(found.values())


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
            and not (_waits(m) or _is_half(m))
        ]
        if on:
            details = tuple(dict.fromkeys(m.detail for _, m in on))[:3]
            found.append(Good(on[0][1].title, details, tuple(dict.fromkeys(entry.path for entry, _ in on))))
    return tuple(found)
