"""A profile for people: the verdict, where the step goes, what to change first."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptopt.profiles.built import NOT_KNOWN, Built
from ptopt.profiles.lines import Line
from ptopt.profiles.profile import Profile
from ptopt.profiles.snapshot import Memory
from ptopt.report.bullets import bullet
from ptopt.report.profile_sections import Cell, Name, Section, headline, judgement, memory_sections, sections
from ptopt.report.text import PROSE, one_line, visible


def render(
    found: Sequence[tuple[Profile | Memory, Sequence[Line]]],
    *,
    width: int = 100,
    color: bool = False,
    most: int = 10,
    built: Built = NOT_KNOWN,
) -> str:
    """All text goes through `Text`, never through console markup."""
    out = io.StringIO()
    console = Console(
        file=out, width=max(min(width, PROSE), 60), force_terminal=color, color_system="standard" if color else None,
        legacy_windows=False, highlight=False, markup=False, emoji=False, _environ={},
    )  # fmt: skip
    for profile, lines in found:
        for part in _parts(profile, lines, most, built):
            console.print(part)
        console.print()
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").split("\n"))


def _parts(
    profile: Profile | Memory, lines: Sequence[Line], most: int, built: Built
) -> Iterator[RenderableType]:
    if isinstance(profile, Memory):
        yield Text(f"{visible(profile.name)}  memory snapshot", "bold")
        for section in memory_sections(profile, most):
            yield from _section(section)
        return
    name, about = headline(profile)
    yield Text.assemble((_shown(name), "bold"), f"  {about}")
    yield Text()
    title, evidence, changes = judgement(profile, built)
    yield Text.assemble((f"{title}: ", "bold yellow"), f"{evidence}.")
    for change in changes:
        yield bullet(Text(one_line(change)))
    for section in sections(profile, lines, most):
        yield from _section(section)
    if profile.limits:
        yield Text()
        yield Text("What this trace cannot say:", "dim")
        for limit in profile.limits:
            yield bullet(Text(one_line(limit), "dim"))


def _section(section: Section) -> Iterator[RenderableType]:
    yield Text()
    yield Text(section.title, "bold")
    if section.note:
        yield Padding(Text(section.note, "dim"), (0, 0, 0, 2))
    table = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_header=any(section.columns)
    )
    for column in section.columns:
        number = column in ("share", "value", "gaps", "per step", "own time", "with calls", "MB per step", "share of time", "size", "blocks")  # fmt: skip
        table.add_column(Text(column), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in section.rows:
        table.add_row(*(Text(_shown(cell), "cyan" if isinstance(cell, Name) else "") for cell in row))
    yield Padding(table, (0, 0, 0, 2))


def _shown(cell: Cell) -> str:
    return one_line(cell.text) if isinstance(cell, Name) else cell
