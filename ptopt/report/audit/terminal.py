"""The audit for people, in a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptopt.audit.values import Audit, EntryPoint, Gap, Level, State, Weighed
from ptopt.findings import Impact
from ptopt.report.audit.cells import in_cells
from ptopt.report.audit.text import (
    HEADINGS,
    NO_FIGURE,
    SYMBOLS,
    alike,
    in_brief,
    names,
    no_figure,
    not_reviewed,
    of_level,
    outcome,
    places,
    reading,
    stands,
    started,
    static_row,
)
from ptopt.report.bullets import bullet
from ptopt.report.gains import gain_line
from ptopt.report.text import count, one_line
from ptopt.report.unbroken import Unbroken

_STYLE = {State.ON: "green", State.OFF: "red", State.UNKNOWN: "yellow", State.NOT_APPLICABLE: "dim"}
_LEVEL = {Level.CRITICAL: "bold red", Level.MODERATE: "bold yellow", Level.LOW: "bold"}
_MOST_ENTRIES = 6
_MOST_FINDINGS = 15
_LISTED = 15
_DEEPEST = 4  # columns of indentation
_NARROWEST = 24  # columns of what is said of a row


def render(audit: Audit, width: int, color: bool) -> str:
    audit = in_cells(audit)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, no_color=not color, highlight=False)
    unbroken = Unbroken()

    def whole(text: str) -> str:
        return unbroken.keep(one_line(text), width - _DEEPEST)

    def in_cell(text: str, beside: int) -> str:
        return unbroken.keep(one_line(text), width - beside)

    for part in _parts(audit, whole, in_cell, width):
        console.print(part)
    text = unbroken.restore(out.getvalue().rstrip("\n"))
    return "\n".join(line.rstrip() for line in text.split("\n")) + "\n"


def _parts(
    audit: Audit, whole: Callable[[str], str], in_cell: Callable[[str, int], str], width: int
) -> Iterator[RenderableType]:
    """`whole` keeps links and long paths in one piece; `in_cell` also, in the last column beside so many others."""
    yield Text(f"Training audit of {one_line(audit.name)}", "bold")
    yield Text(f"{outcome(audit)}.")
    if audit.model is not None:
        yield Text(f"{one_line(reading(audit))}.", "dim")
    groups = alike(audit.entries)
    for entries in groups[:_MOST_ENTRIES]:
        yield Text()
        yield _entry(entries, in_cell, width)
    if left := sum(map(len, groups[_MOST_ENTRIES:])):
        yield Text(f"and {left} more scripts: --format html or json has them all", "dim")
    for level in Level:
        gaps, findings = of_level(audit, level)
        if gaps or findings:
            yield Text()
            yield Text(HEADINGS[level], _LEVEL[level])
        for gap in gaps:
            yield _gap(gap, whole)
        for weighed in findings[:_MOST_FINDINGS]:
            yield _finding(weighed, whole)
        if len(findings) > _MOST_FINDINGS:
            yield _indented(
                Text(f"and {len(findings) - _MOST_FINDINGS} more findings (`ptopt check` lists them)", "dim")
            )
    if audit.good:
        yield Text()
        yield Text("Already good", "bold green")
        for good in audit.good:
            yield _indented(
                Text(one_line(f"{good.title}: {'; '.join(good.details)} ({names(good.entries)})"))
            )
    yield from _plan(audit)
    notes = [*audit.not_judged[:_LISTED], *filter(None, [not_reviewed(audit)])]
    if notes:
        yield Text()
        yield Text("Not judged", "bold")
        for note in notes:
            yield _indented(Text(one_line(note), "dim"))


def _entry(entries: Sequence[EntryPoint], in_cell: Callable[[str, int], str], width: int) -> RenderableType:
    """The table of scripts whose rows are the same; in few columns, what is said of a row stands below it."""
    entry = entries[0]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    titles, states = (
        max((len(text) for text in texts), default=0)
        for texts in ([m.title for m in entry.measures], [SYMBOLS[m.state] for m in entry.measures])
    )
    beside = 2 + titles + 2 + states + 2 + 2  # with the indentation, and the padding behind each column
    stacked: list[RenderableType] | None = [] if width - beside < _NARROWEST else None
    if stacked is not None:
        beside = _DEEPEST
    for measure in entry.measures:
        detail = Text(one_line(measure.detail))
        if measure.evidence:
            detail.append(f"  {in_cell(places(measure.evidence[:2]), beside)}", "dim")
        if before := static_row(measure):
            detail.append(f"  {one_line(before)}", "dim")
        state = Text(SYMBOLS[measure.state], _STYLE[measure.state])
        if stacked is None:
            table.add_row(f"  {measure.title}", state, detail)
        else:
            stacked += [Text.assemble(f"  {measure.title}  ", state), Padding(detail, (0, 0, 0, _DEEPEST))]
    head = Text.assemble(
        (one_line(", ".join(each.path for each in entries)), "bold"), (f"  {one_line(started(entry))}", "dim")
    )
    limits = [_indented(Text(one_line(limit), "dim")) for limit in entry.limits]
    return Group(head, *([table] if stacked is None else stacked), *limits)


def _gap(gap: Gap, whole: Callable[[str], str]) -> RenderableType:
    head = Text.assemble((gap.title, "bold"), f": off in {one_line(names(gap.entries))}")
    lines: list[RenderableType] = [head, _indented(Text(one_line(gap.action)))]
    lines += [_indented(text) for text in _gains(gap.impact, whole)]
    lines.append(_indented(Text(f"Wrong if: {one_line(gap.wrong_if)}", "dim")))
    return _indented(Group(*lines))


def _finding(weighed: Weighed, whole: Callable[[str], str]) -> RenderableType:
    finding = weighed.finding
    head = Text.assemble(
        (whole(stands(weighed)), "bold"),
        f"  {finding.rule} {one_line(finding.name)}",
        (f"  {weighed.reason}", "dim"),
    )
    lines: list[RenderableType] = [head, _indented(Text(one_line(finding.message)))]
    if weighed.also:
        lines.append(_indented(Text(f"Also at {whole(places(weighed.also))}")))
    lines += [_indented(text) for text in _gains(finding.impact, whole, no_figure(finding))]
    if finding.when_wrong:
        lines.append(_indented(Text(f"Wrong if: {one_line(finding.when_wrong)}", "dim")))
    return _indented(Group(*lines))


def _gains(impacts: tuple[Impact, ...], whole: Callable[[str], str], none: str = NO_FIGURE) -> list[Text]:
    if not impacts:
        return [Text(f"Expected: {whole(none)}", "dim")]
    return [Text(f"Expected: {whole(gain_line(impact))}", "dim") for impact in impacts]


def _plan(audit: Audit) -> Iterator[RenderableType]:
    if not audit.plan:
        return
    yield Text()
    yield Text("Plan", "bold")
    for number, phase in enumerate(audit.plan, 1):
        yield _indented(
            Text.assemble((f"Phase {number}: {phase.title}", "bold"), (f"  {phase.effort}", "dim"))
        )
        for step in phase.steps:
            place = f"{one_line(str(step.places[0]))} " if step.places else ""
            if len(step.places) > 1:
                place += f"and {count(len(step.places) - 1, 'other place')}: "
            title = f"{place}{one_line(in_brief(step))}"
            yield bullet(Text.assemble(title, (f"  ({one_line(step.effort)})", "dim")), 4)
    for note in audit.notes:
        yield _indented(Text(note, "dim"))


def _indented(part: RenderableType, by: int = 2) -> Padding:
    return Padding(part, (0, 0, 0, by))
