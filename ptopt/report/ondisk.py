"""Findings in notebooks that were saved without line breaks, for formats that give lines of the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ptopt.findings import Evidence, Finding, Place, Review, Span
from ptopt.report.text import with_cells


def on_disk(review: Review) -> Review:
    """The review with the lines that the files have; texts name the lines in cells."""
    if not review.disk_lines:
        return review
    changes: dict[str, Any] = {
        name: tuple(finding_on_disk(finding, review) for finding in getattr(review, name))
        for name in ("findings", "over_limit", "suppressed", "in_baseline", "dropped")
    }
    changes["unused_suppressions"] = tuple(
        dataclasses.replace(u, line=review.disk_lines.get(u.path, {}).get(u.line, u.line))
        for u in review.unused_suppressions
    )
    texts = review.sources or {}
    changes["sources"] = {path: text for path, text in texts.items() if path not in review.disk_lines}
    changes["cells"] = {path: cells for path, cells in review.cells.items() if path not in review.disk_lines}
    return dataclasses.replace(review, **changes, disk_lines={})


def finding_on_disk(finding: Finding, review: Review) -> Finding:
    """The finding with the lines that its file has."""
    found = review.disk_lines.get(finding.path)
    if found is None:
        return finding

    def words(text: str) -> str:
        return with_cells(review, finding.path, text)

    def place(at: Place) -> Place:
        return (
            at if at.path else dataclasses.replace(at, span=_span(at.span, found), message=words(at.message))
        )

    changes: dict[str, Any] = {
        "span": _span(finding.span, found),
        "message": words(finding.message),
        "evidence": tuple(Evidence(found.get(e.line, e.line), words(e.note)) for e in finding.evidence),
        "also": tuple(place(at) for at in finding.also),
    }
    return dataclasses.replace(finding, **changes)


def _span(span: Span, found: Mapping[int, int]) -> Span:
    return Span(found.get(span.start, span.start), found.get(span.end, span.end))
