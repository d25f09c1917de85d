"""A profile as Markdown. Names of the trace stand in code spans: nothing of them is markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptopt.profiles.built import NOT_KNOWN, Built
from ptopt.profiles.lines import Line
from ptopt.profiles.profile import Profile
from ptopt.profiles.snapshot import Memory
from ptopt.report.profile_sections import Cell, Name, Section, headline, judgement, memory_sections, sections
from ptopt.report.text import code_span, markdown_text, one_line


def render(
    found: Sequence[tuple[Profile | Memory, Sequence[Line]]], *, most: int = 10, built: Built = NOT_KNOWN
) -> str:
    blocks = (block for profile, lines in found for block in _blocks(profile, lines, most, built))
    return "\n\n".join(blocks) + "\n"


def _blocks(profile: Profile | Memory, lines: Sequence[Line], most: int, built: Built) -> Iterator[str]:
    if isinstance(profile, Memory):
        yield f"## {code_span(one_line(profile.name))}: memory snapshot"
        yield from map(_section, memory_sections(profile, most))
        return
    name, about = headline(profile)
    yield f"## {_cell(name)}"
    yield markdown_text(f"{about}.")
    title, evidence, changes = judgement(profile, built)
    yield f"**{title}**: {markdown_text(evidence)}."
    if changes:
        yield "\n".join(f"- {markdown_text(change)}" for change in changes)
    yield from map(_section, sections(profile, lines, most))
    if profile.limits:
        yield "What this trace cannot say:"
        yield "\n".join(f"- {markdown_text(limit)}" for limit in profile.limits)


def _section(section: Section) -> str:
    head = f"| {' | '.join(section.columns)} |\n|{'---|' * len(section.columns)}"
    rows = "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in section.rows)
    note = f"\n\n{markdown_text(section.note)}" if section.note else ""
    return f"### {section.title}\n\n{head}\n{rows}{note}"


def _cell(cell: Cell) -> str:
    """In a table a bar ends a cell even in code, unless a backslash stands before it."""
    if isinstance(cell, Name):
        return code_span(one_line(cell.text)).replace("|", "\\|")
    return markdown_text(cell)
