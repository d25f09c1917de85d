"""Workflow commands: GitHub Actions shows each as an annotation on its lines."""

from __future__ import annotations

from ptopt.findings import Finding, Review
from ptopt.report.plain import plain_message
from ptopt.report.text import MODEL_AWAY, count, headline, is_minor, one_line, place, visible


def render(review: Review, *, suppressed: bool = False) -> str:
    out = []
    for finding in review.findings:
        properties = {
            "file": visible(finding.path),
            "line": str(finding.span.start),
            "endLine": str(finding.span.end),
            "title": one_line(f"{finding.rule} {finding.name}"),
        }
        level = "notice" if is_minor(finding.severity) else "warning"
        values = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        out.append(f"::{level} {values}::{_data(plain_message(finding))}")
    out += [
        plain_line(f"Not shown (comment limit reached): {f.rule} at {place(f.path, f.span)}")
        for f in review.over_limit
    ]
    if suppressed:
        out += [plain_line(f"Suppressed: {_excused(finding)}") for finding in review.suppressed]
    if review.not_reviewed:
        out.append(f"Not reviewed: {count(len(review.not_reviewed), 'file')}")
    if review.model is not None and review.model.note:
        out.append(MODEL_AWAY)
    out.append(f"{headline(review)}.")
    return "\n".join(out) + "\n"


def _excused(finding: Finding) -> str:
    reason = f" ({finding.excuse})" if finding.excuse else ""
    return f"{finding.rule} at {place(finding.path, finding.span)}{reason}"


def plain_line(text: str) -> str:
    """Text to stand within a line of the log: the runner takes `##[` for a command wherever it stands."""
    return one_line(text).replace("##[", "##\\[")


def command(level: str, text: str) -> str:
    """An annotation without a place, whatever `text` holds."""
    return f"::{level} title=ptopt::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
