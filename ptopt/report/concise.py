"""One line for each place, `path:line: rule: message`, for editors, `grep` and problem matchers."""

from __future__ import annotations

from ptopt.findings import Finding, Review, Span
from ptopt.report.text import one_line, visible


def render(review: Review) -> str:
    lines = sorted(
        (
            visible(finding.path),
            span.start,
            f"{finding.rule} {one_line(finding.name)}: {_as_at(finding, span)}{one_line(finding.message)}",
        )
        for finding in review.findings
        for span in (finding.span, *finding.also)
    )
    return "".join(f"{path}:{line}: {text}\n" for path, line, text in lines)


def _as_at(finding: Finding, span: Span) -> str:
    """The message quotes the code of the first place, which another place need not have."""
    return "" if span == finding.span else f"as at line {finding.span.start}: "
