"""A finding in plain text, for formats that have no markup."""

from __future__ import annotations

from ptopt.findings import Finding
from ptopt.report.gains import gain_line
from ptopt.report.places import other_places
from ptopt.report.text import assumed, code_span, one_line


def plain_message(finding: Finding) -> str:
    """Everything in words but the place, one paragraph a line: for formats that carry plain text.

    What a model wrote stands in a code span, because some readers of these formats take text for Markdown.
    """
    parts = [one_line(finding.message)]
    if finding.explanation:
        parts.append(f"The model says: {code_span(one_line(finding.explanation))}")
    parts += [f"Gain: {gain_line(i)}" for i in finding.impact]
    if finding.when_wrong:  # whole: these formats do not show what the fix assumes
        parts.append(f"Wrong if: {one_line(finding.when_wrong)}")
    if finding.assumes:
        parts.append(f"Assumes: {assumed(finding)}")
    parts += [also.plain() for also in other_places(finding)]
    return "\n".join(parts)
