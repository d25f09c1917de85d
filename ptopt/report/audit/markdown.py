"""Markdown for a job summary, an issue or a comment. Nothing of the repository is rendered as markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptopt.audit.values import Audit, EntryPoint, Gap, Level, Step, Weighed
from ptopt.findings import Impact
from ptopt.report.audit.cells import in_cells
from ptopt.report.audit.text import (
    HEADINGS,
    NO_FIGURE,
    SYMBOLS,
    alike,
    by_command,
    check_of,
    in_brief,
    left_out,
    names,
    no_figure,
    no_figure_of,
    not_reviewed,
    of_level,
    outcome,
    priority,
    reading,
    stands,
    started,
    static_row,
    why,
)
from ptopt.report.gains import markdown_gain
from ptopt.report.places import linked_rule
from ptopt.report.text import code_span, count, markdown_text, one_line

_MOST_TABLES = 8  # tables of scripts that stand open; the others are folded
_MOST_LOW = 20
_CUT = "The rest is left out here: `ptopt audit --format html` shows all of it."
_LISTED = 20


def render(audit: Audit, longest: int | None = None) -> str:
    """`longest`: in characters; where it is longer the tables go, then what stands last."""
    audit = in_cells(audit)
    text = "\n\n".join(_blocks(audit, tables=True)) + "\n"
    if longest is None or len(text) <= longest:
        return text
    kept, length = [], len(_CUT) + 2
    for block in _blocks(audit, tables=False):
        length += len(block) + 2
        if length > longest:
            break
        kept.append(block)
    return "\n\n".join([*kept, _CUT]) + "\n"


def _blocks(audit: Audit, tables: bool) -> Iterator[str]:
    yield f"## Training audit of {markdown_text(audit.name)}"
    yield f"{markdown_text(outcome(audit))}."
    if said := priority(audit):
        yield markdown_text(said)
    if audit.model is not None:
        yield f"{markdown_text(reading(audit))}."
    yield from _level(audit, Level.CRITICAL)
    yield from _level(audit, Level.MODERATE)
    if audit.plan:
        yield "### Plan"
        yield from _plan(audit)
    yield from _level(audit, Level.LOW)
    if said := left_out(audit):
        yield f"{markdown_text(said)}."
    if audit.good:
        yield "### Already good"
        yield "\n".join(
            f"- **{good.title}**: {markdown_text('; '.join(good.details))} ({_paths(good.entries)})"
            for good in audit.good
        )
    if audit.entries and tables:
        yield "### Measures of each script"
    groups = alike(audit.entries) if tables else []
    for number, entries in enumerate(groups, 1):
        yield from _entry(entries, number, len(groups))
    if audit.not_judged or audit.not_reviewed:
        yield "### Not judged"
        notes = [markdown_text(note) for note in audit.not_judged]
        if audit.not_reviewed:
            notes.append(markdown_text(not_reviewed(audit)))
        yield "\n".join(f"- {note}" for note in notes[:_LISTED])


def _level(audit: Audit, level: Level) -> Iterator[str]:
    gaps, findings = of_level(audit, level)
    if not gaps and not findings:
        return
    yield f"### {HEADINGS[level]}"
    lines = [line for gap in gaps for line in _gap(gap)]
    for weighed in findings[:_MOST_LOW]:
        lines += _finding(weighed)
    if len(findings) > _MOST_LOW:
        rest = findings[_MOST_LOW:]
        lines.append(f"- and {count(len(rest), 'more finding')}: `{check_of(rest)}` lists them")
    yield "\n".join(lines)


def _gap(gap: Gap) -> Iterator[str]:
    yield f"- **{gap.title}**: off in {_paths(gap.entries)}. {markdown_text(gap.action)}"
    if gap.evidence:
        yield f"  - Evidence: {', '.join(code_span(str(p)) for p in gap.evidence)}"
    yield from _gains(gap.impact, no_figure_of(gap))
    yield f"  - Wrong if: {markdown_text(gap.wrong_if)}"


def _finding(weighed: Weighed) -> Iterator[str]:
    finding = weighed.finding
    at = code_span(stands(weighed))
    yield f"- {at} {linked_rule(finding.rule, finding.name)}: {markdown_text(finding.message)} ({why(weighed)})"
    if weighed.also:
        yield f"  - Also at {', '.join(code_span(str(p)) for p in weighed.also)}"
    yield from _gains(finding.impact, no_figure(finding))
    if finding.when_wrong:
        yield f"  - Wrong if: {markdown_text(finding.when_wrong)}"


def _gains(impacts: tuple[Impact, ...], none: str = NO_FIGURE) -> Iterator[str]:
    for impact in impacts:
        yield f"  - Expected: {markdown_gain(impact)}"
    if not impacts:
        yield f"  - Expected: {markdown_text(none)}"


def _plan(audit: Audit) -> Iterator[str]:
    for number, phase in enumerate(audit.plan, 1):
        yield f"**Phase {number}: {phase.title}** ({phase.effort})"
        lines = []
        for step in phase.steps:
            lines.append(f"1. {markdown_text(in_brief(step))}")
            at = f"; at {', '.join(code_span(str(p)) for p in step.places)}" if step.places else ""
            by = f"{by_command(step)}{code_span(step.command)}" if step.command else ""
            lines.append(f"   - Effort: {step.effort}{by}{markdown_text(_effect(step))}{at}")
        yield "\n".join(lines)
    yield "\n".join(f"> {markdown_text(note)}" for note in audit.notes)


def _effect(step: Step) -> str:
    faster = f"; speeds up: {step.speeds_up}" if step.speeds_up else ""
    return faster + (f"; less memory for: {step.less_memory}" if step.less_memory else "")


def _entry(entries: Sequence[EntryPoint], number: int, of: int) -> Iterator[str]:
    """The table of scripts whose rows are the same; folded where there are many tables."""
    entry = entries[0]
    rows = ["| Measure | State | Details | Evidence |", "| --- | --- | --- | --- |"]
    for measure in entry.measures:
        evidence = ", ".join(_in_table(code_span(str(p))) for p in measure.evidence)
        parts = [measure.detail, *filter(None, [static_row(measure)])]
        detail = _in_table(markdown_text(". ".join(parts)))
        rows.append(f"| {measure.title} | {SYMBOLS[measure.state]} | {detail} | {evidence} |")
    table = "\n".join(rows)
    paths = ", ".join(code_span(one_line(each.path)) for each in entries)
    yield f"{paths} ({markdown_text(started(entries))})"
    folded = f"<details><summary>Table {number} of {of}</summary>\n\n{table}\n\n</details>"
    yield folded if number > _MOST_TABLES else table
    if entry.limits:
        yield "\n".join(f"- {markdown_text(limit)}" for limit in entry.limits)


def _in_table(text: str) -> str:
    """A bar ends the cell of a table, also in a code span."""
    return text.replace("\\|", "|").replace("|", "\\|")


def _paths(paths: tuple[str, ...]) -> str:
    shown = names(paths)
    return code_span(shown) if len(paths) == 1 else markdown_text(shown)
