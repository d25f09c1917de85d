"""Reviewdog Diagnostic Format (`reviewdog -f=rdjson`). Columns count UTF-8 bytes from 1; an end is exclusive."""

from __future__ import annotations

import json
from typing import Any

from ptopt.findings import Finding, Review, Safety
from ptopt.pathkind import is_notebook
from ptopt.report.patch import fix_hunks
from ptopt.report.plain import plain_message
from ptopt.report.text import is_minor


def render(review: Review) -> str:
    document = {
        "source": {"name": "ptopt"},
        "severity": "WARNING",
        "diagnostics": [_diagnostic(review, finding) for finding in review.findings],
    }
    return json.dumps(document, indent=2) + "\n"


def _diagnostic(review: Review, finding: Finding) -> dict[str, Any]:
    diagnostic: dict[str, Any] = {
        "message": plain_message(finding),
        "location": {"path": finding.path, "range": _line_range(review, finding)},
        "severity": "INFO" if is_minor(finding.severity) else "WARNING",
        "code": {"value": finding.rule},
    }
    suggestions = _suggestions(review, finding)
    if suggestions:
        diagnostic["suggestions"] = suggestions
    return diagnostic


def _line_range(review: Review, finding: Finding) -> dict[str, Any]:
    """From the first byte of the first line to the end of the last one, or whole lines without the text."""
    start, end = finding.span.start, finding.span.end
    text = (review.sources or {}).get(finding.path)
    lines = [] if text is None or is_notebook(finding.path) else text.split("\n")
    if end > len(lines):
        return {"start": {"line": start}, "end": {"line": end}}
    width = len(lines[end - 1].rstrip("\r").encode("utf-8", "surrogatepass"))
    return {"start": {"line": start, "column": 1}, "end": {"line": end, "column": width + 1}}


def _suggestions(review: Review, finding: Finding) -> list[dict[str, Any]]:
    """Whole lines, which is what a code host can offer as a suggestion."""
    if finding.fix is None or finding.fix.safety is Safety.DISPLAY or not finding.fix.postable:
        return []
    return [
        {
            "range": {
                "start": {"line": hunk.start, "column": 1},
                "end": {"line": hunk.start + len(hunk.old), "column": 1},
            },
            "text": "".join(hunk.new),
        }
        for hunk in fix_hunks(review, finding)
    ]
