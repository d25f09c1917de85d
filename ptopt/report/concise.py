"""One line for each place, `path:line: rule: message`, for editors, `grep` and problem matchers."""

from __future__ import annotations

from ptopt.findings import Review
from ptopt.report.text import one_line, visible


def render(review: Review) -> str:
    lines = sorted(
        (
            visible(finding.path),
            place.span.start,
            f"{place.rule} {one_line(place.name)}: {one_line(place.message or finding.message)}",
        )
        for finding in review.findings
        for place in finding.places()
    )
    return "".join(f"{path}:{line}: {text}\n" for path, line, text in lines)
