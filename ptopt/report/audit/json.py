"""JSON for programs. `audit.schema.json` describes it; `version` grows when a field changes its meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from ptopt import __version__
from ptopt.audit.values import Audit, Checked, EntryPoint, Gap, Measure, ModelReading, Phase, Place, Weighed
from ptopt.findings import Impact

VERSION = 1


def render(audit: Audit) -> str:
    return json.dumps(as_data(audit), indent=2) + "\n"


def as_data(audit: Audit) -> dict[str, Any]:
    """The audit as plain values, as the schema has it."""
    return {
        "version": VERSION,
        "tool": {"name": "ptopt", "version": __version__},
        "name": audit.name,
        "files": audit.files,
        "entry_points": [_entry(entry) for entry in audit.entries],
        "gaps": [_gap(gap) for gap in audit.gaps],
        "findings": [_finding(weighed) for weighed in audit.findings],
        "good": [
            {"title": g.title, "details": list(g.details), "entry_points": list(g.entries)}
            for g in audit.good
        ],
        "plan": [_phase(phase) for phase in audit.plan],
        "notes": list(audit.notes),
        "not_judged": list(audit.not_judged),
        "not_reviewed": [{"path": n.path, "reason": n.reason} for n in audit.not_reviewed],
        "left_out": sum(audit.left_out.places.values()) if audit.left_out is not None else 0,
        **({} if audit.model is None else {"model": _reading(audit.model)}),
    }


def _entry(entry: EntryPoint) -> dict[str, Any]:
    return {
        "path": entry.path,
        "line": entry.line,
        "framework": entry.framework,
        "training": None if entry.loop is None else _place(entry.loop),
        "files": entry.files,
        "limits": list(entry.limits),
        "measures": [
            {"key": m.key, "title": m.title, **_row(m)}
            | ({} if m.checked is None else {"checked": _checked(m.checked)})
            for m in entry.measures
        ],
    }


def _row(measure: Measure) -> dict[str, Any]:
    return {
        "state": str(measure.state),
        "detail": measure.detail,
        "evidence": [_place(p) for p in measure.evidence],
    }


def _checked(checked: Checked) -> dict[str, Any]:
    return {"model": checked.model, "before": None if checked.before is None else _row(checked.before)}


def _reading(reading: ModelReading) -> dict[str, Any]:
    return dataclasses.asdict(reading)


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "key": gap.key,
        "title": gap.title,
        "priority": str(gap.level),
        "action": gap.action,
        "wrong_if": gap.wrong_if,
        "entry_points": list(gap.entries),
        "evidence": [_place(p) for p in gap.evidence],
        "impact": _impacts(gap.impact),
    }


def _finding(weighed: Weighed) -> dict[str, Any]:
    finding = weighed.finding
    return {
        "priority": str(weighed.level),
        "reason": weighed.reason,
        "rule": finding.rule,
        "name": finding.name,
        "severity": str(finding.severity),
        "path": finding.path,
        "start_line": finding.span.start,
        "end_line": finding.span.end,
        "also": [_place(p) for p in weighed.also],
        "message": finding.message,
        "when_wrong": finding.when_wrong,
        "confidence": finding.confidence,
        "fingerprint": finding.fingerprint,
        "impact": _impacts(finding.impact),
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "title": phase.title,
        "effort": phase.effort,
        "steps": [
            {
                "title": step.title,
                "effort": step.effort,
                "command": step.command or None,
                "speeds_up": step.speeds_up,
                "less_memory": step.less_memory,
                "impact": _impacts(step.impact),
                "places": [_place(p) for p in step.places],
            }
            for step in phase.steps
        ],
    }


def _place(place: Place) -> dict[str, Any]:
    return {"path": place.path, "line": place.line}


def _impacts(impacts: Iterable[Impact]) -> list[dict[str, Any]]:
    return [
        {
            "gain": i.gain,
            "low": i.low,
            "high": i.high,
            "scope": i.scope,
            "conditions": i.conditions,
            "provenance": i.provenance,
            "source": i.source,
        }
        for i in impacts
    ]
