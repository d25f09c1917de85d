"""The other places of a comment, rule by rule: which lines, and for another rule its name and what it says there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ptopt.findings import Finding, Impact, Place, Review
from ptopt.report.text import (
    gain,
    impact_line,
    lines,
    markdown_source,
    markdown_text,
    one_line,
    rule_link,
    visible,
    where,
    with_cells,
)

_LISTED = 12  # places of a rule that a comment lists before it only counts them


@dataclass(frozen=True, slots=True)
class Also:
    """Other places that one rule has in a comment. That of the comment is not named again."""

    at: str
    rule: str = ""
    name: str = ""
    message: str = ""  # at the first of them
    when_wrong: str = ""
    impact: tuple[Impact, ...] = ()

    def plain(self) -> str:
        if not self.rule:
            return f"Also {self.at}"
        said = f": {one_line(self.message)}" if self.message else ""
        gains = "".join(f" Gain: {impact_line(i)}." for i in self.impact)
        wrong = f" Wrong if: {one_line(self.when_wrong)}" if self.when_wrong else ""
        return f"Also {self.rule} {one_line(self.name)} {self.at}{said or '.' * bool(gains)}{gains}{wrong}"

    def markdown(self, longest: int = sys.maxsize) -> str:
        """With a link to the rule; `longest` in characters of each text."""
        if not self.rule:
            return f"Also {markdown_text(self.at)}"
        name = linked_rule(self.rule, self.name)
        said = f": {markdown_text(cut(self.message, longest))}" if self.message else ""
        gains = "".join(
            f" Gain: {markdown_text(cut(gain(i), longest))} ({markdown_source(i.source)})."
            for i in self.impact
        )
        wrong = f" Wrong if: {markdown_text(cut(self.when_wrong, longest))}" if self.when_wrong else ""
        return f"Also {name} {markdown_text(self.at)}{said or '.' * bool(gains)}{gains}{wrong}"


def other_places(finding: Finding, review: Review | None = None) -> list[Also]:
    """The other places of a comment by rule, its own first; those in a notebook by cell where there is a `review`."""
    by_rule: dict[str, list[Place]] = {}
    for place in sorted(finding.also, key=lambda place: place.rule != finding.rule):
        by_rule.setdefault(place.rule, []).append(place)
    found = []
    for rule, places in by_rule.items():
        at = _at(places, finding, review)
        if rule == finding.rule:
            found.append(Also(at))
        else:
            first = next((place for place in places if place.message), places[0])
            message = first.message
            message = message if review is None else with_cells(review, finding.path, message)
            found.append(Also(at, rule, first.name, message, first.when_wrong, first.impact))
    return found


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
