"""The other places of a comment, rule by rule: which lines, and for another rule its name and what it says there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
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

_CODE = re.compile(r"`[^`]+`")
_WAITS = re.compile(r"(?<=also waits at )lines? \d+(?:, \d+)*")
_STATED = 3  # statements of a rule that a comment repeats
_LISTED = 12  # places of a rule that a comment lists before it only counts them


@dataclass(frozen=True, slots=True)
class Also:
    """Other places that one rule has in a comment. That of the comment is not named again, but for milder places."""

    at: str  # all of them; milder places with their severity
    rule: str = ""
    name: str = ""
    said: tuple[
        tuple[str, str], ...
    ] = ()  # what the rule says at which of them, where it says something of its own
    when_wrong: str = ""
    impact: tuple[Impact, ...] = ()

    @property
    def heading(self) -> str:
        """In plain text: the rule, and where; where each place has its own statement these name it."""
        return f"Also {self._named(f'{self.rule} {one_line(self.name)}')}"

    @property
    def statements(self) -> list[str]:
        """What stands below the heading, in plain text: one place a line."""
        return [one_line(f"{at}: {message}" if len(self.said) > 1 else message) for at, message in self.said]

    def plain(self) -> str:
        """For formats without markup: a paragraph, and one for each further place."""
        first, *others = self.statements or [""]
        gains = "".join(f" Gain: {gain_line(i)}." for i in self.impact)
        wrong = f" Wrong if: {one_line(self.when_wrong)}" if self.when_wrong else ""
        said = "\n".join([f"{self.heading}{f': {first}' if first else ''}", *others])
        return f"{said}{'' if first else '.' * bool(gains)}{gains}{wrong}"

    def markdown(self, longest: int = sys.maxsize) -> str:
        """An item of a list, with a link to the rule and a list of its own; `longest` in characters of each text."""
        below = [
            f"{f'{markdown_text(at)}: ' if len(self.said) > 1 else ''}{markdown_text(cut(message, longest))}"
            for at, message in self.said
        ]
        if not self.rule:
            return f"Also {markdown_text(self.at)}{': ' if below else ''}{' '.join(below)}"
        below += [f"Gain: {markdown_gain(i, lambda text: cut(text, longest))}" for i in self.impact]
        below += [f"Wrong if: {markdown_text(cut(self.when_wrong, longest))}"] if self.when_wrong else []
        heading = f"Also {self._named(linked_rule(self.rule, self.name), markdown_text)}"
        return "\n  - ".join([heading, *below])

    def _named(self, rule: str, escaped: Callable[[str], str] = str) -> str:
        parts = [rule if self.rule else "", escaped(self.at) if len(self.said) < 2 else ""]
        return " ".join(filter(None, parts))


def other_places(finding: Finding, review: Review | None = None) -> list[Also]:
    """The other places of a comment by rule, its own first; those in a notebook by cell where there is a `review`.

    Places of its own rule of which the comment does not hold, or that are milder, stand apart, with what the rule says there.
    """
    by_rule: dict[tuple[str, Severity | None], list[Place]] = {}
    for place in sorted(
        finding.also, key=lambda place: (place.rule != finding.rule, bool(_milder(place, finding)))
    ):
        by_rule.setdefault((place.rule, _milder(place, finding)), []).append(place)
    found: list[Also] = []
    for (rule, milder), places in by_rule.items():
        at = _at(places, finding, review)
        if rule == finding.rule and milder is None:
            found += _of_its_rule(places, finding, review)
            continue
        said = _said(places, finding, review)
        if milder is not None:
            found += [
                Also(f"{there} ({milder} severity)", said=((there, what),)) for there, what in said
            ] or [Also(f"{at} ({milder} severity)")]
        else:
            first = next((place for place in places if place.message), places[0])
            found.append(Also(at, rule, first.name, said, first.when_wrong, first.impact))
    return found


def _of_its_rule(places: Sequence[Place], finding: Finding, review: Review | None) -> Iterator[Also]:
    """Where the comment holds word for word, but for the code of the line and the other waits; elsewhere what holds there."""
    same = [place for place in places if _is_said_of(place, finding)]
    if same:
        yield Also(_at(same, finding, review))
    others = [place for place in places if place not in same]
    for at, message in _said(others, finding, review):
        yield Also(at, said=((at, message),))


def _is_said_of(place: Place, finding: Finding) -> bool:
    return not place.message or _elsewhere(place.message) == _elsewhere(finding.message)


def _elsewhere(message: str) -> str:
    """The message without what names its own line: the first code in it, and the lines that wait, too."""
    return _WAITS.sub("", _CODE.sub("", message, count=1))


def _said(places: Sequence[Place], finding: Finding, review: Review | None) -> tuple[tuple[str, str], ...]:
    """Each statement with the places where it is made; the statement of the comment itself stands there already."""
    by_message: dict[str, list[Place]] = {}
    for place in places:
        by_message.setdefault(place.message, []).append(place)
    if not any(by_message):
        return ()
    groups = list(by_message.items())
    shown = [
        (
            _at(group, finding, review),
            message if review is None else with_cells(review, finding.path, message),
        )
        for message, group in groups[:_STATED]
    ]
    rest = [place for _, group in groups[_STATED:] for place in group]
    if rest:
        shown.append((_at(rest, finding, review), "likewise"))
    return tuple((at, message or "as above") for at, message in shown)


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
