"""One line for each place, `path:line: rule: message`, for editors, `grep` and problem matchers.

The message of a finding quotes its first place; at the others it says so.
"""

from __future__ import annotations

from ptopt.findings import Review
from ptopt.report.text import one_line, visible


def render(review: Review) -> str:
    lines = sorted(
        (
            visible(finding.path),
            span.start,
            f"{finding.rule} {one_line(finding.name)}: {as_at}{one_line(finding.message)}",
        )
        for finding in review.findings
        for span, as_at in (
            (finding.span, ""),
            *((span, f"like line {finding.span.start}: ") for span in finding.also),
        )
    )
    return "".join(f"{path}:{line}: {text}\n" for path, line, text in lines)
