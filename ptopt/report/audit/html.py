"""One HTML page that needs nothing else: no script, no request, light and dark, narrow and wide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from ptopt import __version__
from ptopt.audit.values import Audit, EntryPoint, Gap, Level, Measure, Place, State, Step, Weighed
from ptopt.findings import Impact
from ptopt.report.audit.cells import in_cells
from ptopt.report.audit.text import (
    HEADINGS,
    NO_FIGURE,
    SYMBOLS,
    alike,
    by_command,
    in_brief,
    left_out,
    names,
    no_figure,
    no_figure_of,
    not_reviewed,
    number_of,
    of_level,
    outcome,
    priority,
    reading,
    stands,
    started,
    static_row,
    tally,
    why,
)
from ptopt.report.gains import condition, in_short
from ptopt.report.text import one_line, rule_link, split_code

_LINK = re.compile(r"https://[\w.~/%#?=&+:-]+", re.A)
_TO_DO = (State.OFF, State.UNKNOWN)  # the rows that somebody may act on; a narrow page folds the others
_CLASS = {State.ON: "on", State.OFF: "off", State.UNKNOWN: "unknown", State.NOT_APPLICABLE: "na"}


def render(audit: Audit) -> str:
    audit = in_cells(audit)
    style = (resources.files(__name__.rpartition(".")[0]) / "audit.css").read_text(encoding="utf-8")
    body = "\n".join(_body(audit))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Training audit of {_text(audit.name)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(audit: Audit) -> Iterator[str]:
    yield f"<header><h1>Training audit of {_text(audit.name)}</h1><p>{_text(outcome(audit))}.</p>"
    if audit.model is not None:
        yield f'<p class="note">{_text(reading(audit))}.</p>'
    yield '<ul class="counts">'
    for level in Level:
        yield _count(number_of(audit, level), str(level), f"{level} priority")
    yield _count(sum(len(phase.steps) for phase in audit.plan), "plan", "in the plan")
    yield _count(len(audit.good), "good", "already good")
    yield "</ul>"
    if said := priority(audit):
        yield f'<p class="note">{_prose(said)}</p>'
    yield "</header><main>"
    # What to do stands first: the tables that it follows from are long.
    yield from _level(audit, Level.CRITICAL)
    yield from _level(audit, Level.MODERATE)
    if audit.plan:
        yield from _plan(audit)
    yield from _level(audit, Level.LOW)
    if said := left_out(audit):
        yield f'<p class="note">{_prose(said)}.</p>'
    if audit.good:
        yield '<section id="good"><h2>Already good</h2><ul>'
        for good in audit.good:
            yield f"<li><b>{_text(good.title)}</b>: {_prose('; '.join(good.details))} <small>{_text(names(good.entries))}</small></li>"
        yield "</ul></section>"
    if audit.entries:
        yield '<section id="measures"><h2>Measures of each script</h2>'
        yield '<p class="key"><span class="on">on</span> <span class="off">off</span> <span class="unknown">unknown</span> '
        yield '<span class="na">n/a (not applicable)</span></p>'
        groups = alike(audit.entries)
        for entries in groups:
            yield from _entry(entries, len(groups) == 1)
        yield "</section>"
    if audit.not_judged or audit.not_reviewed:
        yield "<section><h2>Not judged</h2><ul>"
        for note in audit.not_judged:
            yield f"<li>{_prose(note)}</li>"
        if audit.not_reviewed:
            yield f"<li>{_prose(not_reviewed(audit))}.</li>"
        yield "</ul></section>"
    yield f"</main><footer>ptopt {_text(__version__)}</footer>"


def _count(number: int, section: str, what: str) -> str:
    """How many there are, as a link to the section that lists them."""
    shown = f"<b>{number}</b> {what}"
    if number:
        shown = f'<a href="#{section}">{shown}</a>'
    return f'<li class="{section}">{shown}</li>'


def _level(audit: Audit, level: Level) -> Iterator[str]:
    gaps, findings = of_level(audit, level)
    if not gaps and not findings:
        return
    yield f'<section class="{level}" id="{level}"><h2>{HEADINGS[level]}</h2>'
    for gap in gaps:
        yield from _item(level, _text(gap.title), _gap(gap))
    for weighed in findings:
        finding = weighed.finding
        title = f"{_text(finding.rule)} {_text(finding.name)} <small>{_text(why(weighed))}</small>"
        yield from _item(level, title, _finding(weighed))
    yield "</section>"


def _item(level: Level, title: str, body: Iterator[str]) -> Iterator[str]:
    """A finding or a missing measure; of those that weigh little only the title is open."""
    if level is Level.LOW:
        yield f'<details class="item"><summary>{title}</summary>'
        yield from body
        yield "</details>"
        return
    yield f"<article><h3>{title}</h3>"
    yield from body
    yield "</article>"


def _gap(gap: Gap) -> Iterator[str]:
    yield f"<p>Off in {_text(names(gap.entries))}. {_prose(gap.action)}</p>"
    yield from _places(gap.evidence)
    yield from _ranges(gap.impact, no_figure_of(gap))
    yield f'<p class="wrong">Wrong if: {_prose(gap.wrong_if)}</p>'


def _finding(weighed: Weighed) -> Iterator[str]:
    finding = weighed.finding
    page = rule_link(finding.rule)
    about = f' <a href="{escape(page)}">about this rule</a>' if _LINK.fullmatch(page) else ""
    yield f'<p class="places"><code>{_text(stands(weighed))}</code></p><p>{_prose(finding.message)}</p>'
    yield from _places(weighed.also)
    yield from _ranges(finding.impact, no_figure(finding))
    if finding.when_wrong:
        yield f'<p class="wrong">Wrong if: {_prose(finding.when_wrong)}</p>'
    if about:
        yield f'<p class="range">{about}</p>'


def _ranges(impacts: tuple[Impact, ...], none: str = NO_FIGURE) -> Iterator[str]:
    if not impacts:
        yield f'<p class="range">Expected: {_text(none)}.</p>'
    for impact in impacts:
        word = "how" if impact.provenance == "measured" else "source"
        link = (
            f'<a href="{escape(impact.source)}">{word}</a>'
            if _LINK.fullmatch(impact.source)
            else _text(impact.source)
        )
        yield f'<p class="range">Expected: {_text(in_short(impact))} ({_text(condition(impact))}, {link})</p>'


def _plan(audit: Audit) -> Iterator[str]:
    yield '<section id="plan"><h2>Plan</h2>'
    for number, phase in enumerate(audit.plan, 1):
        yield f"<h3>Phase {number}: {_text(phase.title)} <small>{_text(phase.effort)}</small></h3><ol>"
        for step in phase.steps:
            yield from _step(step)
        yield "</ol>"
    for note in audit.notes:
        yield f'<p class="note">{_prose(note)}</p>'
    yield "</section>"


def _step(step: Step) -> Iterator[str]:
    by = f"{by_command(step)}<code>{_text(step.command)}</code>" if step.command else ""
    yield f"<li><p>{_prose(in_brief(step))} <small>{_text(step.effort)}{by}</small></p>"
    yield from _places(step.places)
    yield "</li>"


def _entry(entries: Sequence[EntryPoint], is_open: bool) -> Iterator[str]:
    """The table of scripts whose rows are the same."""
    entry = entries[0]
    paths = " ".join(f"<code>{_text(each.path)}</code>" for each in entries)
    numbers = tally(entry.measures)
    total = max(sum(numbers.values()), 1)
    yield f"<details{' open' if is_open else ''}><summary>{paths} <small>{_text(started(entries))}</small>"
    yield '<span class="stack" aria-hidden="true">'
    for state, number in numbers.items():
        if number:
            yield f'<i class="{_CLASS[state]}" style="width:{100 * number / total:.2f}%"></i>'
    shown = ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
    yield f'</span><span class="tally">{shown}</span></summary>'
    for limit in entry.limits:
        yield f'<p class="note">{_prose(limit)}</p>'
    open_rows = [m for m in entry.measures if m.state in _TO_DO]
    others = [m for m in entry.measures if m.state not in _TO_DO]
    if open_rows:
        yield from _table(open_rows)
    if others:
        shown = ", ".join(
            f"{numbers[state]} {state}" for state in numbers if numbers[state] and state not in _TO_DO
        )
        yield f'<details class="rest"><summary>{shown}</summary>'
        yield from _table(others)
        yield "</details>"
    yield "</details>"


def _table(measures: list[Measure]) -> Iterator[str]:
    yield "<table><thead><tr><th>Measure</th><th>State</th><th>Details</th></tr></thead><tbody>"
    for measure in measures:
        places = "".join(_places(measure.evidence))
        yield f'<tr><th scope="row">{_text(measure.title)}</th><td><span class="{_CLASS[measure.state]}">{SYMBOLS[measure.state]}</span></td>'
        before = static_row(measure)
        changed = f'<p class="note">{_prose(before)}</p>' if before else ""
        yield f"<td>{_prose(measure.detail)}{places}{changed}</td></tr>"
    yield "</tbody></table>"


def _places(found: tuple[Place, ...]) -> Iterator[str]:
    if found:
        yield f'<p class="places">{" ".join(f"<code>{_text(str(p))}</code>" for p in dict.fromkeys(found))}</p>'


def _text(text: str) -> str:
    return escape(one_line(text))


def _prose(text: str) -> str:
    """Text with its code spans; everything in it escaped."""
    return "".join(
        f"<code>{escape(part)}</code>" if is_code else escape(part)
        for part, is_code in split_code(one_line(text))
    )
