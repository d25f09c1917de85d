"""The other places of a comment, rule by rule: which lines, and for another rule its name and what it says there."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ptopt.findings import Finding, Impact, Place, Review, Severity
from ptopt.report.gains import gain_line, markdown_gain
from ptopt.report.text import (
    lines,
    markdown_text,
    one_line,
    rule_link,
    visible,
    where,
    with_cells,
)

_LINE = re.compile(r"\bline (\d+)\b")
_LISTED = 12  # places of a rule that a comment lists before it only counts them


@dataclass(frozen=True, slots=True)
class Also:
    """Other places that one rule has in a comment. That of the comment is not named again, but for milder places."""

    at: str  # milder places with their severity
    rule: str = ""
    name: str = ""
    message: str = ""  # at the first of them, with the lines that it names at the others
    when_wrong: str = ""
    impact: tuple[Impact, ...] = ()

    @property
    def statement(self) -> str:
        """In plain text: where, and what the rule says there."""
        named = f"{self.rule} {one_line(self.name)} " if self.rule else ""
        return f"Also {named}{self.at}{f': {one_line(self.message)}' if self.message else ''}"

    def plain(self) -> str:
        if not self.rule:
            return self.statement
        gains = "".join(f" Gain: {gain_line(i)}." for i in self.impact)
        wrong = f" Wrong if: {one_line(self.when_wrong)}" if self.when_wrong else ""
        return f"{self.statement}{'' if self.message else '.' * bool(gains)}{gains}{wrong}"

    def markdown(self, longest: int = sys.maxsize) -> str:
        """With a link to the rule; `longest` in characters of each text."""
        message = f": {markdown_text(cut(self.message, longest))}" if self.message else ""
        if not self.rule:
            return f"Also {markdown_text(self.at)}{message}"
        name = linked_rule(self.rule, self.name)
        gains = "".join(f" Gain: {markdown_gain(i, lambda text: cut(text, longest))}." for i in self.impact)
        wrong = f" Wrong if: {markdown_text(cut(self.when_wrong, longest))}" if self.when_wrong else ""
        return f"Also {name} {markdown_text(self.at)}{message or '.' * bool(gains)}{gains}{wrong}"


def other_places(finding: Finding, review: Review | None = None) -> list[Also]:
    """The other places of a comment by rule, its own first; those in a notebook by cell where there is a `review`.

    Places of its own rule that are milder than the comment stand apart, with what the rule says there.
    """
    by_rule: dict[tuple[str, Severity | None], list[Place]] = {}
    for place in sorted(
        finding.also, key=lambda place: (place.rule != finding.rule, bool(_milder(place, finding)))
    ):
        by_rule.setdefault((place.rule, _milder(place, finding)), []).append(place)
    found = []
    for (rule, milder), places in by_rule.items():
        at = _at(places, finding, review)
        if rule == finding.rule and milder is None:
            found.append(Also(at))
            continue
        first = next((place for place in places if place.message), places[0])
        message = joint_message([place.message for place in places if place.message])
        message = message if review is None else with_cells(review, finding.path, message)
        if milder is not None:
            found.append(Also(f"{at} ({milder} severity)", message=message))
        else:
            found.append(Also(at, rule, first.name, message, first.when_wrong, first.impact))
    return found


def joint_message(messages: Sequence[str]) -> str:
    """The first message; with the lines that the others name in place of its own, where they differ in nothing else."""
    first = messages[0] if messages else ""
    parts = _LINE.split(first)  # text, number, text, ...
    alike = [other for one in messages if (other := _LINE.split(one))[::2] == parts[::2]]
    if len(alike) < len(messages) or len(set(messages)) < 2:
        return first
    joint = parts[0]
    for at in range(1, len(parts), 2):
        numbers = sorted({int(other[at]) for other in alike})
        joint += f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}{parts[at + 1]}"
    return joint


def _milder(place: Place, finding: Finding) -> Severity | None:
    """The severity of a place of the comment's own rule, where it is below that of the comment."""
    if place.rule != finding.rule or place.severity is None or place.severity is finding.severity:
        return None
    return place.severity


def _at(places: Sequence[Place], finding: Finding, review: Review | None) -> str:
    """`here`, `at lines 4, 7-8`, `here and at line 9`; in a notebook `at cell 2:4`; in other files `at b.yml:7`."""
    elsewhere = [f"{visible(at.path)}:{lines(at.span)}" for at in places if at.path]
    spans = [at.span for at in places if not at.path]
    there = [span for span in spans if span != finding.span]
    here = "here" if len(there) < len(spans) else ""
    if elsewhere:
        rest = f" and {len(elsewhere) - _LISTED} more" if len(elsewhere) > _LISTED else ""
        own = [_at([at for at in places if not at.path], finding, review)] if spans else []
        return " and ".join([*own, f"at {', '.join(elsewhere[:_LISTED])}{rest}"])
    if not there:
        return here
    rest = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    if review is not None and review.cells.get(finding.path):
        shown = [where(review, finding.path, span) for span in there[:_LISTED]]
        names = ", ".join(name.removeprefix(f"{visible(finding.path)}:") for name in shown)
    else:
        several = len(there) > 1 or there[0].start != there[0].end
        names = f"{'lines' if several else 'line'} {', '.join(map(lines, there[:_LISTED]))}"
    return f"{here}{' and ' if here else ''}at {names}{rest}"


def linked_rule(rule_id: str, name: str) -> str:
    """Id and name of a rule in Markdown, with a link to its page where it has one."""
    title, page = f"{rule_id} {markdown_text(name)}", rule_link(rule_id)
    return f"[{title}](<{page}>)" if page else title


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} …"
