"""One line for each place, `path:line: rule: message`, for editors, `grep` and problem matchers."""

from __future__ import annotations

from ptopt.findings import Review
from ptopt.report.text import one_line, visible


def render(review: Review) -> str:
    lines = sorted(
        (
            visible(finding.path),
            span.start,
            f"{finding.rule} {one_line(finding.name)}: {one_line(finding.message)}",
        )
        for finding in review.findings
        for span in (finding.span, *finding.also)
    )
    return "".join(f"{path}:{line}: {text}\n" for path, line, text in lines)
