"""The audit for people, in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptopt.audit.values import Audit, EntryPoint, Gap, Level, Measure, Place, State, Weighed
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
from ptopt.report.bullets import bullet
from ptopt.report.gains import gain_line
from ptopt.report.text import PROSE, count, one_line
from ptopt.report.unbroken import Unbroken

_STYLE = {State.ON: "green", State.OFF: "red", State.UNKNOWN: "yellow", State.NOT_APPLICABLE: "dim"}
_LEVEL = {Level.CRITICAL: "bold red", Level.MODERATE: "bold yellow", Level.LOW: "bold"}
_MOST_ENTRIES = 6
_MOST_FINDINGS = 15
_LISTED = 15
_MOST_PLACES = 4  # of a row: as many as the measure of one script names
_DEEPEST = _BELOW = 6  # columns of indentation: of the items of the plan, and of what stands below a row
_NARROWEST = 24  # columns of what is said of a row


def render(audit: Audit, width: int, color: bool) -> str:
    """In at most so many columns: a wider terminal leaves the others free, as all of it is prose."""
    audit = in_cells(audit)
    width = min(width, PROSE)
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, no_color=not color, highlight=False)
    unbroken = Unbroken()

    for part in _Page(width, unbroken).parts(audit):
        console.print(part)
    text = unbroken.restore(out.getvalue().rstrip("\n"))
    return "\n".join(line.rstrip() for line in text.split("\n")) + "\n"


class _Page:
    """The parts of an audit, for lines of so many columns. Links and places stay in one piece."""

    def __init__(self, width: int, unbroken: Unbroken) -> None:
        self._width = width
        self._unbroken = unbroken

    def _whole(self, text: str) -> str:
        """Of a text: the links and paths that are longer than a line."""
        return self._unbroken.keep(one_line(text), self._width - _DEEPEST)

    def _place(self, text: str, indented: int = _DEEPEST, behind: str = "") -> str:
        """`demo.ipynb:cell 2:5`, with the comma behind it."""
        return self._unbroken.piece(one_line(text) + behind, self._width - indented)

    def _places(self, found: Iterable[Place], indented: int = _DEEPEST) -> str:
        *others, last = dict.fromkeys(map(str, found))
        return " ".join([*(self._place(each, indented, ",") for each in others), self._place(last, indented)])

    def parts(self, audit: Audit) -> Iterator[RenderableType]:
        yield Text(f"Training audit of {one_line(audit.name)}", "bold")
        yield Text(f"{outcome(audit)}.")
        if said := priority(audit):
            yield Text(said, "dim")
        if audit.model is not None:
            yield Text(f"{one_line(reading(audit))}.", "dim")
        groups = alike(audit.entries)
        shown = sorted(sorted(range(len(groups)), key=lambda at: _says_less(groups[at]))[:_MOST_ENTRIES])
        for at in shown:
            yield Text()
            yield self._entry(groups[at])
        if left := [entry.path for at, group in enumerate(groups) if at not in shown for entry in group]:
            more = f"and {count(len(left), 'more script')} ({names(left)}): --format html, markdown or json has them all"
            yield Text(self._whole(more), "dim")
        for level in Level:
            gaps, findings = of_level(audit, level)
            if gaps or findings:
                yield Text()
                yield Text(HEADINGS[level], _LEVEL[level])
            for gap in gaps:
                yield self._gap(gap)
            for weighed in findings[:_MOST_FINDINGS]:
                yield self._finding(weighed)
            if len(findings) > _MOST_FINDINGS:
                rest = findings[_MOST_FINDINGS:]
                more = f"and {count(len(rest), 'more finding')} (`{check_of(rest)}` lists them)"
                yield _indented(Text(more, "dim"))
        if said := left_out(audit):
            yield Text()
            yield Text(f"{said}.", "dim")
        if audit.good:
            yield Text()
            yield Text("Already good", "bold green")
            for good in audit.good:
                said = f"{good.title}: {'; '.join(good.details)} ({names(good.entries)})"
                yield _indented(Text(self._whole(said)))
        yield from self._plan(audit)
        notes = [*audit.not_judged[:_LISTED], *filter(None, [not_reviewed(audit)])]
        if notes:
            yield Text()
            yield Text("Not judged", "bold")
            for note in notes:
                yield _indented(Text(self._whole(note), "dim"))

    def _entry(self, entries: Sequence[EntryPoint]) -> RenderableType:
        """The table of scripts whose rows are the same."""
        entry = entries[0]
        titles, states = (
            max((len(text) for text in texts), default=0)
            for texts in ([m.title for m in entry.measures], [SYMBOLS[m.state] for m in entry.measures])
        )
        paths = [self._place(each.path, 0, ",") for each in entries[:-1]]
        head = Text.assemble(
            (" ".join([*paths, self._place(entries[-1].path, 0)]), "bold"),
            (f"  {self._whole(started(entries))}", "dim"),
        )
        rows = [part for measure in entry.measures for part in self._row(measure, titles, states)]
        return Group(head, *rows, *(_indented(Text(self._whole(limit), "dim")) for limit in entry.limits))

    def _row(self, measure: Measure, titles: int, states: int) -> Iterator[RenderableType]:
        """A row of the table; what its last column is too narrow for stands below it."""
        room = self._width - (2 + titles + 2 + states + 2)
        detail = Text(self._whole(measure.detail))
        every = list(dict.fromkeys(measure.evidence))
        found, others = every[:_MOST_PLACES], len(every[_MOST_PLACES:])
        more = f" and {others} more" if others else ""
        fits = all(len(str(place)) < room for place in found)
        if found and fits:
            detail.append(f"  {self._places(found)}{more}", "dim")
        if before := static_row(measure):
            detail.append(f"  {self._whole(before)}", "dim")
        narrow = room < _NARROWEST or any(len(word) > room for word in detail.plain.split())
        below = [detail] if narrow else []
        if found and not fits:
            below.append(Text(f"{self._places(found, _BELOW)}{more}", "dim"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=2 + titles)
        table.add_column(no_wrap=True, width=states)
        table.add_column(overflow="fold")
        state = Text(SYMBOLS[measure.state], _STYLE[measure.state])
        table.add_row(f"  {measure.title}", state, Text() if narrow else detail)
        yield table
        yield from (_indented(text, _BELOW) for text in below)

    def _gap(self, gap: Gap) -> RenderableType:
        head = Text.assemble((gap.title, "bold"), f": off in {self._whole(names(gap.entries))}")
        lines: list[RenderableType] = [head, _indented(Text(one_line(gap.action)))]
        lines += [_indented(text) for text in self._gains(gap.impact, no_figure_of(gap))]
        lines.append(_indented(Text(f"Wrong if: {one_line(gap.wrong_if)}.", "dim")))
        return _indented(Group(*lines))

    def _finding(self, weighed: Weighed) -> RenderableType:
        finding = weighed.finding
        head = Text.assemble(
            (self._place(stands(weighed)), "bold"),
            f"  {finding.rule} {one_line(finding.name)}",
            (f"  {why(weighed)}", "dim"),
        )
        lines: list[RenderableType] = [head, _indented(Text(one_line(finding.message)))]
        if weighed.also:
            lines.append(_indented(Text(f"Also at {self._places(weighed.also)}")))
        lines += [_indented(text) for text in self._gains(finding.impact, no_figure(finding))]
        if finding.when_wrong:
            lines.append(_indented(Text(f"Wrong if: {one_line(finding.when_wrong)}", "dim")))
        return _indented(Group(*lines))

    def _gains(self, impacts: tuple[Impact, ...], none: str = NO_FIGURE) -> list[Text]:
        if not impacts:
            return [Text(f"Expected: {self._whole(none)}", "dim")]
        return [Text(f"Expected: {self._whole(gain_line(impact))}", "dim") for impact in impacts]

    def _plan(self, audit: Audit) -> Iterator[RenderableType]:
        if not audit.plan:
            return
        yield Text()
        yield Text("Plan", "bold")
        for number, phase in enumerate(audit.plan, 1):
            yield _indented(
                Text.assemble((f"Phase {number}: {phase.title}", "bold"), (f"  {phase.effort}", "dim"))
            )
            for step in phase.steps:
                said = one_line(in_brief(step))
                if step.places:
                    second = step.places[1] if len(step.places) == 2 else None
                    others = len(step.places) - 1
                    more = f" and {count(others, 'other place')}" if others else ""
                    more = f" and {self._place(str(second), _BELOW)}" if second is not None else more
                    said = f"{self._place(str(step.places[0]), _BELOW, '' if more else ':')}{more}{':' * bool(more)} {said}"
                how = one_line(step.effort)
                if step.command:
                    how += f"{by_command(step)}`{self._whole(step.command)}`"
                yield bullet(Text.assemble(said, (f"  ({how})", "dim")), 4)
        for note in audit.notes:
            yield _indented(Text(note, "dim"))


def _says_less(group: Sequence[EntryPoint]) -> tuple[int, int]:
    """How little the table of a group tells beside those of others: after what most commands start, what is known best."""
    unknown = sum(measure.state is State.UNKNOWN for measure in group[0].measures)
    return -max(entry.commands for entry in group), unknown


def _indented(part: RenderableType, by: int = 2) -> Padding:
    return Padding(part, (0, 0, 0, by))
