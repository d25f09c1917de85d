"""SARIF 2.1.0, for code scanning and editors."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from ptopt import __version__
from ptopt.address import URL, absolute
from ptopt.findings import Edit, Finding, NotReviewed, Review, Safety, Span, UnusedSuppression
from ptopt.pathkind import is_notebook
from ptopt.report.patch import Positions
from ptopt.report.plain import plain_message
from ptopt.report.rulelist import page
from ptopt.report.text import (
    MODEL_AWAY,
    fix_line,
    is_minor,
    one_line,
    place,
    rule_link,
    unused,
)
from ptopt.rules import find_rule
from ptopt.verify import EditError

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(review: Review, *, suppressed: bool = False) -> str:
    """`suppressed`: with the findings that a comment silences. GitHub shows these like all others."""
    silenced = review.suppressed if suppressed else ()
    reported = [*review.findings, *silenced]
    rules = {f.rule: f for f in reported}
    ids = sorted(rules)
    notifications = [
        *(_not_reviewed(n) for n in review.not_reviewed),
        *(_over_limit(f) for f in review.over_limit),
        *(_unused(u) for u in review.unused_suppressions),
    ]
    if review.model is not None and review.model.note:
        notifications.append({"level": "note", "message": {"text": MODEL_AWAY}})
    run = {
        "tool": {
            "driver": {
                "name": "ptopt",
                "informationUri": URL,
                "semanticVersion": __version__,
                "rules": [_rule(rules[rule]) for rule in ids],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The root of the repository."}}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": [
            *(_result(review, f, ids.index(f.rule)) for f in review.findings),
            *({**_result(review, f, ids.index(f.rule)), "suppressions": [_suppression(f)]} for f in silenced),
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _suppression(finding: Finding) -> dict[str, str]:
    said = {"justification": _message(one_line(finding.excuse))} if finding.excuse else {}
    return {"kind": "inSource", **said}


def _rule(finding: Finding) -> dict[str, Any]:
    known = find_rule(finding.rule)
    if known is None:
        return {"id": finding.rule, "name": finding.name}
    text = absolute(page(known))
    link = rule_link(finding.rule)
    return {
        "id": finding.rule,
        "name": known.name,
        **({"helpUri": link} if link else {}),
        "shortDescription": {"text": known.summary()},
        "fullDescription": {"text": known.sections().get("What it does") or known.summary()},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": "note" if is_minor(known.severity) else "warning"},
        "properties": {"tags": ["performance", "pytorch", known.family]},
    }


def _result(review: Review, finding: Finding, rule_index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": "note" if is_minor(finding.severity) else "warning",
        "rank": round(finding.confidence * 100, 2),
        "message": {"text": _message(plain_message(finding))},
        "locations": [_location(finding.path, finding.span, symbol=finding.symbol)],
        "partialFingerprints": {"ptopt/v1": finding.fingerprint},
        "properties": {"origin": finding.origin},
    }
    related = [_location(finding.path, Span(e.line, e.line), e.note) for e in finding.evidence]
    related += [
        _location(finding.path_of(also), also.span, f"{also.rule} {also.name}: {finding.message_at(also)}")
        for also in finding.also
    ]
    if related:
        result["relatedLocations"] = related
    if (
        finding.fix is not None
        and finding.fix.safety is not Safety.DISPLAY
        and finding.fix.edits
        and not _in_notebook(finding)
    ):
        replacements = _replacements((review.sources or {}).get(finding.path), finding.fix.edits)
        result["fixes"] = [
            {
                "description": {"text": _message(fix_line(finding))},
                "artifactChanges": [
                    {"artifactLocation": _artifact(finding.path), "replacements": replacements}
                ],
            }
        ]
    return result


def _in_notebook(finding: Finding) -> bool:
    """Edits of a notebook are of its code, which has other offsets than the file."""
    return is_notebook(finding.path)


def _replacements(text: str | None, edits: tuple[Edit, ...]) -> list[dict[str, Any]]:
    """Byte offsets hold for a UTF-8 file; lines and columns, where the text is at hand, for any encoding."""
    positions = None if text is None else Positions(text)
    found = []
    for edit in edits:
        region = {"byteOffset": edit.start, "byteLength": edit.end - edit.start}
        if positions is not None:
            try:
                start_line, start_column = positions.characters_at(edit.start)
                end_line, end_column = positions.characters_at(edit.end)
            except EditError:
                pass
            else:
                region |= {"startLine": start_line, "startColumn": start_column}
                region |= {"endLine": end_line, "endColumn": end_column}
        found.append({"deletedRegion": region, "insertedContent": {"text": edit.replacement}})
    return found


def _location(path: str, span: Span, note: str = "", symbol: str = "") -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": _artifact(path),
            "region": {"startLine": span.start, "endLine": span.end},
        }
    }
    if note:
        location["message"] = {"text": _message(one_line(note))}
    if symbol:
        location["logicalLocations"] = [{"fullyQualifiedName": symbol}]
    return location


def _artifact(path: str) -> dict[str, str]:
    uri = quote(path.encode("utf-8", "surrogateescape"), safe="/")
    if path.startswith("/"):
        return {"uri": f"file://{uri}"}
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}


def _not_reviewed(item: NotReviewed) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": _message(one_line(f"Not reviewed: {item.reason}"))},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(item.path)}}],
    }


def _over_limit(finding: Finding) -> dict[str, Any]:
    where = place(finding.path, finding.span)
    text = f"Not shown (comment limit reached): {finding.rule} {finding.name} at {where}"
    return {
        "level": "note",
        "message": {"text": _message(text)},
        "locations": [_location(finding.path, finding.span)],
    }


def _unused(item: UnusedSuppression) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": _message(f"Unused suppression: {unused(item)}")},
        "locations": [_location(item.path, Span(item.line, item.line))],
    }


def _message(text: str) -> str:
    """SARIF reads `{0}` in a message as a placeholder and `[text](target)` as a link: neither is meant here."""
    text = text.replace("{", "{{").replace("}", "}}") if "{" in text else text
    return text.replace("[", "\\[").replace("]", "\\]") if "](" in text else text
