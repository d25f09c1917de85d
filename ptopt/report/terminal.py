"""The review for people: code, evidence, the fix as a diff, and what was left out.

All text goes through `Text`, never through console markup, and shows control characters as escapes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptopt.address import RANKING_PAGE
from ptopt.findings import Condition, Finding, Review, Safety, Severity, Span
from ptopt.pathkind import language
from ptopt.report.bullets import bullet
from ptopt.report.conditions import wrong_if
from ptopt.report.gains import gain_line
from ptopt.report.patch import fix_hunks
from ptopt.report.places import other_places
from ptopt.report.terminal_summary import summary
from ptopt.report.text import (
    PROSE,
    assumed,
    cell_of,
    code_line,
    excerpt,
    fix_line,
    lines,
    measured_line,
    missed_line,
    one_line,
    proof_line,
    split_code,
    weighed,
    where,
    with_cells,
)
from ptopt.report.unbroken import Unbroken

_MAX_LINES = 12  # of code in one excerpt, and of one fix
_SEVERITY = {Severity.HIGH: "bold red", Severity.MEDIUM: "bold yellow", Severity.LOW: "bold blue"}
_SAFETY = {Safety.SAFE: "green", Safety.UNSAFE: "yellow", Safety.DISPLAY: "dim"}


def render(
    review: Review,
    *,
    width: int = 100,
    color: bool = False,
    explain: bool = False,
    verbose: bool = False,
    suppressed: bool = False,
    quiet: bool = False,
) -> str:
    """`width` in columns; `explain` shows what each finding was weighed by, `verbose` lists the files that were reviewed
    and those that were not, `suppressed` the findings that a comment silences; `quiet` shows the findings alone. Colours are the 16 of the terminal's own theme.
    """
    out = io.StringIO()
    console = _console(out, width, color)
    unbroken = Unbroken()
    for finding in review.findings:
        console.print(_finding(review, finding, _Lines(color, console.width, unbroken), explain))
        console.print()
    prose = min(console.width, PROSE)
    below = summary(review, verbose, suppressed, lambda text: unbroken.keep(text, prose - 2), explain)
    for line in () if quiet else below:
        console.print(line, width=prose)
    if explain:
        console.print(Text(unbroken.keep(_next_step(review), prose), "dim"), width=prose)
    text = unbroken.restore(out.getvalue().rstrip("\n"))
    if not text:
        return ""
    return "".join(f"{line.rstrip()}\n" for line in text.split("\n"))


def _next_step(review: Review) -> str:
    """Where to read on about what `--explain` shows."""
    if review.findings:
        return f"What the features mean: {RANKING_PAGE}; what a rule looks for: `ptopt explain {review.findings[0].rule}`."
    return f"No finding to explain; how findings are chosen: {RANKING_PAGE}."


def summary_text(review: Review, *, width: int, verbose: bool, suppressed: bool) -> str:
    """What stands below the findings, the outcome left out."""
    out = io.StringIO()
    console, unbroken = _console(out, min(width, PROSE), color=False), Unbroken()
    lines = summary(review, verbose, suppressed, lambda text: unbroken.keep(text, console.width - 2))
    for line in islice(lines, 1, None):
        console.print(line)
    return "".join(f"{line.rstrip()}\n" for line in unbroken.restore(out.getvalue()).splitlines())


def _console(out: io.StringIO, width: int, color: bool) -> Console:
    return Console(
        file=out,
        width=max(width, 40),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )


@dataclass(frozen=True, slots=True)
class _Lines:
    """How the lines of a finding are made."""

    color: bool
    width: int  # of the terminal, in columns
    unbroken: Unbroken

    @property
    def readable(self) -> int:
        """The columns that prose takes, indented by two."""
        return min(self.width, PROSE) - 2

    def code(self, text: Text, room: int, whole: bool) -> list[Text]:
        """A line of code in so many columns: cut off, or where it has to be `whole`, wrapped below its indentation."""
        if text.cell_len <= room:
            return [text]
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        text = text[max(indent - room // 3, 0) :]
        indent = min(indent, room // 3)
        if not whole:
            text.truncate(room, overflow="ellipsis")
            return [text]
        console = _console(io.StringIO(), self.width, self.color)
        first = text.wrap(console, room, overflow="fold")[0]
        rest = text[len(first.plain) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip(" ")) :]
        hang = indent + 2
        more = list(rest.wrap(console, room - hang, overflow="fold")) if rest.plain else []
        return [first, *(Text(" " * hang) + line for line in more)]

    def prose(self, text: str, style: str = "", taken: int = 2) -> Text:
        """A paragraph; code is marked by its colour, and by backticks where there is none. `taken` columns stand before it."""
        styled = Text(style=style)
        for part, is_code in split_code(self.unbroken.keep(one_line(text), self.readable + 2 - taken)):
            if is_code:
                styled.append(part if self.color else f"`{part}`", "cyan")
            else:
                styled.append(part)
        return styled

    def paragraph(self, text: str, style: str = "") -> RenderableType:
        return Constrain(self.prose(text, style), self.readable)

    def labelled(self, label: str, text: str) -> RenderableType:
        if len(label) > self.readable // 3:  # what stands beside it would have no room
            return Constrain(Text.assemble((f"{label}: ", "dim"), self.prose(text)), self.readable)
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_column()
        row.add_column(overflow="fold")
        row.add_row(Text(f"{label}:", "dim"), self.prose(text, taken=len(label) + 5))
        return Constrain(row, self.readable)


def _finding(review: Review, finding: Finding, lines: _Lines, explain: bool) -> RenderableType:
    width, labelled = lines.width, lines.labelled
    at = Text(lines.unbroken.keep(where(review, finding.path, finding.span), width), "bold")
    named = Text.assemble((finding.rule, _SEVERITY[finding.severity]), f" {one_line(finding.name)}")
    rated = Text.assemble(
        (f"{finding.severity} severity", _SEVERITY[finding.severity]),
        (f", confidence {finding.confidence:.2f}", "dim"),
    )
    if finding.origin != "rule":
        rated.append(f"  by the {one_line(finding.origin)}", "dim")
    title = Text.assemble(named, "  ", rated)
    message = with_cells(review, finding.path, finding.message)
    parts: list[RenderableType] = [lines.paragraph(message)]
    if finding.explanation:
        parts.append(labelled("The model says", finding.explanation))
    code = _code(review, finding, lines)
    if code is not None:
        parts += ["", code, ""]
    shown = finding.span.lines() if code is not None else ()
    parts += [
        labelled(with_cells(review, finding.path, f"line {e.line}"), with_cells(review, finding.path, e.note))
        for e in finding.evidence
        if e.line not in shown
    ]
    others = other_places(finding, review)
    parts += [lines.paragraph(also.plain()) for also in others if not also.rule]
    parts += _fix(review, finding, lines)
    if finding.measured is not None:
        parts.append(labelled("Measured in your run", measured_line(finding)))
    parts += [labelled("Gain", gain_line(i)) for i in finding.impact]
    if finding.proof is not None:
        parts.append(labelled("Run", proof_line(finding)))
    wrong = wrong_if(finding)
    if wrong:
        parts.append(labelled("Wrong if", wrong))
    if finding.assumes:
        parts.append(labelled("Assumes", assumed(finding)))
    for also in others:
        if also.rule:  # with gain and condition on lines of their own, as those of the finding stand
            parts.append(lines.paragraph(also.heading + ":" * bool(also.said)))
            parts += [
                Constrain(bullet(lines.prose(said, taken=6)), lines.readable) for said in also.statements
            ]
            parts += [labelled("  Gain", gain_line(impact)) for impact in also.impact]
            parts += [labelled("  Wrong if", one_line(also.when_wrong))] if also.when_wrong else []
    if explain:
        parts.append(labelled("Weighed by", weighed(finding)))
    lifted = finding.missed[:1] == (Condition.CONFIDENCE,) and finding.rule not in review.asked
    if finding.missed and (explain or not lifted):  # a confidence that somebody lifted, that person knows
        parts.append(labelled("Not shown by default", missed_line(finding, review.conditions)))
    if at.cell_len + 2 + title.cell_len <= width:
        return Group(Text.assemble(at, "  ", title), Padding(Group(*parts), (0, 0, 0, 2)))
    heading = [title] if title.cell_len + 2 <= width else [named, rated]
    return Group(at, Padding(Group(*heading, *parts), (0, 0, 0, 2)))


def _grid() -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(justify="right", no_wrap=True, style="dim")
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _code(review: Review, finding: Finding, lines: _Lines) -> Table | None:
    """The lines of the finding marked with a bar, with one line of context on each side."""
    numbered = [
        (number, line)
        for number, line in excerpt(review, finding.path, finding.span, context=1)
        if _number(review, finding.path, number)  # not from one cell into the next
    ]
    if not numbered:
        return None
    texts = _highlighted(_dedented([line for _, line in numbered]), finding.path, lines.color)
    rows = [(n, text) for (n, _), text in zip(numbered, texts, strict=True)]
    grid = _grid()
    names = [_number(review, finding.path, number) for number, _ in rows]
    room = lines.width - 2 - max(map(len, names)) - len(" │ ") - 1  # a grid leaves a column free at its end
    for name, (number, text) in zip(names[:_MAX_LINES], rows, strict=False):
        inside = number in finding.span.lines()
        for line in lines.code(text, room, inside):
            grid.add_row(name, Text("┃", "red") if inside else Text("│", "dim"), line)
            name = ""
    if len(rows) > _MAX_LINES:
        grid.add_row("", Text("┆", "dim"), Text(f"{len(rows) - _MAX_LINES} more lines", "dim"))
    return grid


def _number(review: Review, path: str, line: int) -> str:
    """The number of a line: in a notebook that in its cell, and none between the cells."""
    if path not in review.cells:
        return str(line)
    cell = cell_of(review, path, Span(line, line))
    return "" if cell is None else lines(cell[1])


def _dedented(lines: list[str]) -> list[str]:
    """Lines of code without the indentation they share, so that fewer are wrapped."""
    shown = [code_line(line).rstrip() for line in lines]
    shared = min((len(line) - len(line.lstrip(" ")) for line in shown if line), default=0)
    return [line[shared:] for line in shown]


def _highlighted(lines: list[str], path: str, color: bool) -> list[Text]:
    if not color:
        return [Text(line) for line in lines]
    from rich.syntax import Syntax  # brings Pygments, which only colour needs

    text = Syntax("", language(path), theme="ansi_dark", background_color="default").highlight(
        "\n".join(lines)
    )
    parts = list(text.split("\n", allow_blank=True))[: len(lines)]
    return parts if [p.plain for p in parts] == lines else [Text(line) for line in lines]


def _fix(review: Review, finding: Finding, shown: _Lines) -> Iterator[RenderableType]:
    if finding.fix is None:
        return
    changes = fix_hunks(review, finding)
    yield shown.paragraph(fix_line(finding) + (":" if changes else ""), _SAFETY[finding.fix.safety])
    if not changes:
        return
    name = partial(_number, review, finding.path)
    grid = _grid()
    signed: list[tuple[str, str, str]] = []
    for hunk in changes:
        signed += [(name(number), "-", line) for number, line in enumerate(hunk.old, hunk.start)]
        # A line that replaces another stands below it; an added one names its place.
        places = (
            [""] * len(hunk.new) if hunk.old else map(name, range(hunk.start, hunk.start + len(hunk.new)))
        )
        signed += [(place, "+", line) for place, line in zip(places, hunk.new, strict=True)]
    codes = _dedented([line for _, _, line in signed])
    rows = [
        (number, Text(sign, style), Text(code, style))
        for (number, sign, _), code in zip(signed, codes, strict=True)
        for style in ("red" if sign == "-" else "green",)
    ]
    room = shown.width - 2 - max(len(number) for number, _, _ in rows) - len(" - ") - 1
    for number, sign, code in rows[:_MAX_LINES]:
        first, *rest = shown.code(code, room, whole=True)
        grid.add_row(number, sign, first)
        for line in rest:
            grid.add_row("", "", line)
    if len(rows) > _MAX_LINES:
        grid.add_row("", Text("┆", "dim"), Text(f"{len(rows) - _MAX_LINES} more lines", "dim"))
    yield grid
