"""JSON for programs. `review.schema.json` describes it; `version` grows when a field changes its meaning."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ptopt import __version__
from ptopt.findings import Condition, Finding, Impact, LeftOut, ModelRecord, Place, Review, Span
from ptopt.report.ondisk import finding_on_disk
from ptopt.report.patch import fix_diff
from ptopt.report.text import cell_of

VERSION = 1


def render(review: Review) -> str:
    return json.dumps(as_data(review), indent=2) + "\n"


def as_data(review: Review) -> dict[str, Any]:
    """The review as plain values, as the schema has it."""
    data: dict[str, Any] = {
        "version": VERSION,
        "tool": {"name": "ptopt", "version": __version__},
        "files_reviewed": review.files_reviewed,
        "reviewed": list(review.reviewed),
        "config_path": review.config_path,
        "compared": review.compared,
        "below_threshold": sum(review.left_out.places.values()) if review.left_out else 0,
        "left_out": _left_out(review.left_out),
        "findings": [_finding(review, f) for f in review.findings],
        "over_limit": [_finding(review, f) for f in review.over_limit],
        "suppressed": [_finding(review, f) for f in review.suppressed],
        "in_baseline": [_finding(review, f) for f in review.in_baseline],
        "not_reviewed": [
            {"path": n.path, "reason": n.reason, "syntax_error": n.syntax_error} for n in review.not_reviewed
        ],
        "unused_suppressions": [
            {
                "path": u.path,
                "line": review.disk_lines.get(u.path, {}).get(u.line, u.line),
                "codes": list(u.codes),
            }
            for u in review.unused_suppressions
        ],
    }
    if review.model is not None:
        data["model"] = _model(review, review.model)
    return data


def _left_out(left: LeftOut | None) -> dict[str, Any] | None:
    if left is None:
        return None
    return {
        "places": {str(c): left.places.get(c, 0) for c in Condition},
        "least": {str(c): left.least.get(c, 0.0) for c in Condition},  # 0: it is not asked for
        "all_findings": left.all_findings,
        "all_places": left.all_places,
    }


def _model(review: Review, record: ModelRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "adapter": record.adapter,
        "prompt_version": record.prompt_version,
        "schema_version": record.schema_version,
        "judged": record.judged,
        "invalid": record.invalid,
        "dropped": [
            {
                "rule": f.rule,
                "name": f.name,
                "path": f.path,
                "start_line": f.span.start,
                "end_line": f.span.end,
                "confidence": f.confidence,
            }
            for f in (finding_on_disk(each, review) for each in review.dropped)
        ],
        "note": record.note,
    }


def _finding(review: Review, finding: Finding) -> dict[str, Any]:
    there = finding_on_disk(finding, review)
    data = {
        "rule": finding.rule,
        "name": finding.name,
        "family": finding.family,
        "severity": str(finding.severity),
        "path": finding.path,
        "start_line": there.span.start,
        "end_line": there.span.end,
        "cell": _cell(review, finding.path, finding.span),
        "symbol": finding.symbol,
        "confidence": finding.confidence,
        "right": finding.right,
        "stated": finding.stated,
        "missed": [str(condition) for condition in finding.missed],
        "reasons": [{"feature": name, "log_odds": weight} for name, weight in finding.reasons],
        "message": there.message,
        "when_wrong": finding.when_wrong,
        "evidence": [{"line": e.line, "note": e.note} for e in there.evidence],
        "impact": [_impact(i) for i in finding.impact],
        "fix": _fix(review, finding),
        "fingerprint": finding.fingerprint,
        "origin": finding.origin,
        "also": [
            _place(review, finding.path_of(place), place, at)
            for place, at in zip(finding.also, there.also, strict=True)
        ],
        "assumes": finding.assumes,
    }
    if finding.measured is not None:
        data["measured"] = dataclasses.asdict(finding.measured)
    if finding.proof is not None:
        data["proof"] = {
            "proved": finding.proof.proved,
            "inputs": finding.proof.inputs,
            "low": finding.proof.low,
            "high": finding.proof.high,
            "conditions": finding.proof.conditions,
            "reason": finding.proof.refused,
            "why": finding.proof.why,
        }
    if finding.explanation:
        data["explanation"] = finding.explanation
    return data


def _place(review: Review, path: str, place: Place, there: Place) -> dict[str, Any]:
    return {
        "rule": place.rule,
        "name": place.name,
        "family": place.family,
        "path": path,
        "start_line": there.span.start,
        "end_line": there.span.end,
        "cell": _cell(review, path, place.span),
        "message": there.message,
        "when_wrong": place.when_wrong,
        "severity": None if place.severity is None else str(place.severity),
        "impact": [_impact(i) for i in place.impact],
    }


def _impact(impact: Impact) -> dict[str, Any]:
    return {
        "gain": impact.gain,
        "low": impact.low,
        "high": impact.high,
        "scope": impact.scope,
        "conditions": impact.conditions,
        "provenance": impact.provenance,
        "source": impact.source,
    }


def _cell(review: Review, path: str, span: Span) -> dict[str, int] | None:
    found = cell_of(review, path, span)
    return None if found is None else {
        "number": found[0], "start_line": found[1].start, "end_line": found[1].end
    }  # fmt: skip


def _fix(review: Review, finding: Finding) -> dict[str, Any] | None:
    fix = finding.fix
    if fix is None:
        return None
    return {
        "safety": str(fix.safety),
        "rule": finding.fix_rule or finding.rule,
        "assumption": fix.assumption,
        "postable": fix.postable,
        "edits": [{"start": e.start, "end": e.end, "replacement": e.replacement} for e in fix.edits],
        "diff": fix_diff(review, finding),
    }
