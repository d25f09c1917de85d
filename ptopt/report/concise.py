"""One line for each place, `path:line: rule: message`, for editors, `grep` and problem matchers; then what is not shown.

The lines behind the places have no number behind a colon, so that no such reader takes them for places.
"""

from __future__ import annotations

from ptopt.findings import Review
from ptopt.report.text import count, left_out_lines, one_line, outcome, visible


def render(review: Review) -> str:
    lines = sorted(
        (
            visible(finding.path_of(place)),
            place.span.start,
            f"{place.rule} {one_line(place.name)}: {one_line(place.message or finding.message)}",
        )
        for finding in review.findings
        for place in finding.places()
    )
    places = [f"{path}:{line}: {text}" for path, line, text in lines]
    return "".join(f"{line}\n" for line in [*places, *_rest(review)])


def _rest(review: Review) -> list[str]:
    rest = [f"{outcome(review)}."]
    if review.left_out is not None:
        rest.append("; ".join(left_out_lines(review.left_out)) + ".")
    if len(review.not_reviewed) == 1:
        (item,) = review.not_reviewed
        rest.append(f"{visible(item.path)} not reviewed: {one_line(item.reason)}.")
    elif review.not_reviewed:
        rest.append(f"{count(len({item.path for item in review.not_reviewed}), 'file')} not reviewed.")
    return rest
