"""GitLab's code quality report: an entry for each finding, at its first line."""

from __future__ import annotations

import json
from typing import Any

from ptopt.findings import Finding, Review, Severity
from ptopt.report.plain import plain_message
from ptopt.report.text import one_line

_SEVERITY = {Severity.HIGH: "major", Severity.MEDIUM: "minor", Severity.LOW: "info"}


def render(review: Review) -> str:
    return json.dumps([_entry(finding) for finding in review.findings], indent=2) + "\n"


def _sentence(line: str) -> str:
    """GitLab shows the description as one paragraph, so what were lines end in a full stop."""
    text = one_line(line)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "description": " ".join(_sentence(line) for line in plain_message(finding).split("\n")),
        "check_name": f"{finding.rule} {finding.name}",
        "fingerprint": finding.fingerprint,
        "severity": _SEVERITY[finding.severity],
        "location": {
            "path": finding.path,
            "lines": {"begin": finding.span.start, "end": finding.span.end},
        },
    }
