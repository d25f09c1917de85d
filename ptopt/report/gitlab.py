"""GitLab's code quality report: an entry for each finding, at its first line."""

from __future__ import annotations

import json
from typing import Any

from ptopt.findings import Finding, Review, Severity
from ptopt.report.text import one_line, plain_message

_SEVERITY = {Severity.HIGH: "major", Severity.MEDIUM: "minor", Severity.LOW: "info"}


def render(review: Review) -> str:
    return json.dumps([_entry(finding) for finding in review.findings], indent=2) + "\n"


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "description": one_line(plain_message(finding)),
        "check_name": f"{finding.rule} {finding.name}",
        "fingerprint": finding.fingerprint,
        "severity": _SEVERITY[finding.severity],
        "location": {
            "path": finding.path,
            "lines": {"begin": finding.span.start, "end": finding.span.end},
        },
    }
