"""Texts that the formats of an audit share."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ptopt.audit.plan import SUGGESTED
from ptopt.audit.values import Audit, EntryPoint, Gap, Level, Measure, Place, State, Step, Weighed
from ptopt.findings import Finding
from ptopt.impact import of_rule, on_a_cpu
from ptopt.report.gains import condition, in_short
from ptopt.report.text import count, left_out_shortly, place

SYMBOLS = {State.ON: "on", State.OFF: "off", State.UNKNOWN: "unknown", State.NOT_APPLICABLE: "n/a"}
HEADINGS = {
    Level.CRITICAL: "Critical priority",
    Level.MODERATE: "Moderate priority",
    Level.LOW: "Low priority",
}
_PRIORITY = "Priority (critical, moderate, low) says what to do first."
_OF_FINDINGS = (
    "For a finding it combines the severity of the rule (high, medium, low), as `ptopt review` reports it, with the confidence and how "
    "often the code runs."
)
_OF_MEASURES = (
    "For a measure that is off it is that of the kind of measure: moderate where it usually changes much of a step, low where it changes "
    "little of one; how much it brings here was not measured."
)
NO_FIGURE = "no published figure; measure it"
_OTHER_CODE = "the known figures are of other code; measure it"
_NAMED = 4
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")

_OUTSIDE = (
    "modules of the repository that lie outside this folder and were not read. Audit the whole repository"
)
_WHAT_COUNTS = (
    "A file counts that trains when it is started: its main block, or code at its top, leads to a backward pass or to the call "
    "of a trainer. Of a library, audit a project that trains with it"
)


def priority(audit: Audit) -> str:
    """How the priorities came about of what the audit lists; "" where it lists nothing."""
    parts = [_OF_FINDINGS] * bool(audit.findings) + [_OF_MEASURES] * bool(audit.gaps)
    return " ".join([_PRIORITY, *parts]) if parts else ""


def no_figure(finding: Finding) -> str:
    """What to say of a finding without a figure: that of a CPU, where the rule has no other."""
    if any(impact.device != "cpu" or impact.provenance != "measured" for impact in of_rule(finding.name)):
        return _OTHER_CODE
    known = on_a_cpu(finding.name, finding.symbol)
    return NO_FIGURE if known is None else f"no figure for a GPU; {in_short(known)} ({condition(known)})"


def no_figure_of(gap: Gap) -> str:
    """What to say of a missing measure without a figure."""
    return _OTHER_CODE if gap.other_figures else NO_FIGURE


def check_of(findings: Sequence[Weighed]) -> str:
    """The command that lists these findings, some of which may be less sure than what it lists by itself."""
    lowest = min(f.confidence for weighed in findings for f in (weighed.finding, *weighed.others))
    return f"ptopt check --min-confidence {math.floor(lowest * 100) / 100:g}"


def outcome(audit: Audit) -> str:
    """One line: what was looked at, and what was found."""
    if not audit.entries and audit.outside:
        number = len(audit.outside)
        said = f"{count(number, 'script')} import{'s' if number == 1 else ''}"
        return f"No training script found in {count(audit.files, 'Python file')}, but {said} {_OUTSIDE}"
    if not audit.entries:
        return f"No training script found in {count(audit.files, 'Python file')}. {_WHAT_COUNTS}"
    levels = ", ".join(f"{number_of(audit, level)} {level}" for level in Level)
    return f"{count(len(audit.entries), 'training script')} in {count(audit.files, 'Python file')}; by priority: {levels}"


def number_of(audit: Audit, level: Level) -> int:
    """Findings and missing measures of a level."""
    return sum(g.level is level for g in audit.gaps) + sum(f.level is level for f in audit.findings)


def of_level(audit: Audit, level: Level) -> tuple[list[Gap], list[Weighed]]:
    return [g for g in audit.gaps if g.level is level], [f for f in audit.findings if f.level is level]


def why(weighed: Weighed) -> str:
    """What its priority follows from: the severity of the rule, as a review states it, and the reason here."""
    return f"{weighed.finding.severity} severity, {weighed.reason}"


def names(paths: Sequence[str]) -> str:
    """A few paths, and how many more."""
    rest = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + rest


def stands(weighed: Weighed) -> str:
    """`train.py:12-14`; in a notebook by cell."""
    return weighed.at or place(weighed.finding.path, weighed.finding.span)


def places(found: Iterable[Place]) -> str:
    return ", ".join(dict.fromkeys(map(str, found)))


def in_brief(step: Step) -> str:
    """What to do, in a sentence: all about it stands above the plan."""
    return _SENTENCE.split(step.title, maxsplit=1)[0]


def by_command(step: Step) -> str:
    """What stands between the effort of a step and its command: that does all of it, or saves a part of the effort."""
    return ": " if step.effort == SUGGESTED else ", less with "


def not_reviewed(audit: Audit) -> str:
    """How many files the review left out, and what most of them are; "" where there are none."""
    if not audit.not_reviewed:
        return ""
    reasons = Counter(item.reason.partition(":")[0] for item in audit.not_reviewed).most_common(2)
    several = len(reasons) > 1
    named = ", ".join(f"{reason}: {number:,}" if several else reason for reason, number in reasons)
    return f"{count(len(audit.not_reviewed), 'file')} not reviewed for findings ({named})"


def left_out(audit: Audit) -> str:
    """How many places rules propose that are not listed, why, and how to see them; "" where there are none."""
    if audit.left_out is None:
        return ""
    places, _ = left_out_shortly(audit.left_out)
    return f"Of findings, {places}; `--min-confidence 0` lists what no table states of them, and what rules are unsure of"


def tally(measures: Iterable[Measure]) -> dict[State, int]:
    """How many measures are in each state."""
    table = dict.fromkeys(State, 0)
    for measure in measures:
        table[measure.state] += 1
    return table


def alike(entries: Sequence[EntryPoint]) -> list[list[EntryPoint]]:
    """The scripts, those whose tables say the same together: one table is enough for them. The first of each holds the evidence of all."""
    groups: dict[object, list[EntryPoint]] = {}
    for entry in entries:
        rows = tuple((m.key, m.state, m.detail, static_row(m)) for m in entry.measures)
        groups.setdefault((entry.framework, entry.loop, rows, entry.limits), []).append(entry)
    return [[_with_evidence(group), *group[1:]] for group in groups.values()]


def _with_evidence(group: Sequence[EntryPoint]) -> EntryPoint:
    """The first script, with the places that decide the rows of all."""
    rows = tuple(
        replace(row[0], evidence=tuple(dict.fromkeys(place for each in row for place in each.evidence)))
        for row in zip(*(entry.measures for entry in group), strict=True)
    )
    return replace(group[0], measures=rows, files=max(entry.files for entry in group))


def static_row(measure: Measure) -> str:
    """What the static audit said of a row that a model changed; "" where it stands."""
    before = measure.checked.before if measure.checked is not None else None
    return "" if before is None else f"The static audit said: {SYMBOLS[before.state]}, {before.detail}"


def reading(audit: Audit) -> str:
    """What a model did with the tables and findings; "" where none read them."""
    model = audit.model
    if model is None:
        return ""
    parts = [f"Checked by {model.model}: {count(model.agreed, 'row')} confirmed, {model.changed} changed"]
    if model.refused:
        parts.append(f"{count(model.refused, 'change')} dropped after a second look")
    if model.refuted:
        parts.append(f"{model.refuted} of {count(model.findings, 'finding')} left out as wrong")
    if model.invalid:
        parts.append(f"{count(model.invalid, 'answer')} not usable")
    return "; ".join(parts) + (f". Not all was checked: {model.note}" if model.note else "")


def started(entries: Sequence[EntryPoint]) -> str:
    """Framework, and where the training starts, behind the paths of scripts with the same table."""
    entry, loop = entries[0], ""
    if entry.loop is not None:
        named = len(entries) == 1 and entry.loop.path == entry.path
        in_file = f"{'line ' * (entry.loop.cell is None)}{entry.loop.where}"
        loop = f", training at {in_file if named else entry.loop}"
    return f"{entry.framework}{loop}, {count(entry.files, 'file')} read"
