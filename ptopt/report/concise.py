"""One line for each place, `path:line: rule: message` (in a notebook `path:cell 2:5`), for editors, `grep` and problem matchers; then what is not shown.

A place with several rules has the second one behind the first, so that there are as many lines as places are counted. The
lines behind the places have no number behind a colon, so that no such reader takes them for places.
"""

from __future__ import annotations

from collections import defaultdict

from ptopt.findings import Finding, Review, Span
from ptopt.report.text import count, left_out_line, one_line, outcome, unused, visible, where, with_cells


def render(review: Review, *, quiet: bool = False, suppressed: bool = False) -> str:
    messages: defaultdict[tuple[str, Span], dict[str, list[str]]] = defaultdict(dict)
    for finding in review.findings:
        for place in finding.places():
            message = with_cells(review, finding.path, one_line(finding.message_at(place)))
            rules = messages[finding.path_of(place), place.span].setdefault(message, [])
            rules.append(f"{place.rule} {one_line(place.name)}")
    lines = []
    for (path, span), there in sorted(messages.items(), key=lambda item: (visible(item[0][0]), item[0][1])):
        said = "; ".join(f"{', '.join(rules)}: {message}" for message, rules in there.items())
        lines.append(f"{where(review, path, Span(span.start, span.start))}: {said}")
    return "".join(f"{line}\n" for line in (lines if quiet else [*lines, *_rest(review, suppressed)]))


def _rest(review: Review, suppressed: bool) -> list[str]:
    rest = [f"{outcome(review)}."]
    if suppressed:
        rest += [_suppressed(review, finding) for finding in review.suppressed]
    if review.left_out is not None:
        rest.append(f"{left_out_line(review.left_out, review.in_hook)}.")
    if len(review.not_reviewed) == 1:
        (item,) = review.not_reviewed
        rest.append(f"{visible(item.path)} not reviewed: {one_line(item.reason)}.")
    elif review.not_reviewed:
        rest.append(f"{count(len({item.path for item in review.not_reviewed}), 'file')} not reviewed.")
    rest += [
        f"{visible(u.path)}, {with_cells(review, u.path, f'line {u.line}')}: unused suppression of {unused(u)}."
        for u in review.unused_suppressions
    ]
    return rest


def _suppressed(review: Review, finding: Finding) -> str:
    lines = with_cells(review, finding.path, f"line {finding.span.start}")
    reason = f" ({one_line(finding.excuse)})" if finding.excuse else ""
    return f"{visible(finding.path)}, {lines}: suppressed {finding.rule} {one_line(finding.name)}{reason}."
