"""The JSON schema of a model's own findings, and the parser of its answers.

The schema admits only rules that we know, and few numbers beyond the last line. It is the same for all regions of about
the same length: a server compiles a grammar for each one that it has not seen, which takes longer than a short answer.
Which lines were shown the parser knows; it trusts nothing, as a server may ignore a schema, or cut an answer short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ptopt.model.region import Region, file_line, shown_number
from ptopt.rules import rules

SCHEMA_VERSION = "1"
MAX_FINDINGS = 2
MAX_REPLACEMENT = 600  # characters, as is the next
MAX_REASON = 200
MAX_TOKENS = 1024
"""Room for the longest answer that the schema admits, in code and prose of three characters a token."""

_SHORT = 32  # lines of a region: the smallest bound
_LONGEST = 20_000  # characters; longer than any answer that conforms
_FIELDS = ("rule", "start_line", "end_line", "replacement", "reason")


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding as the model gave it: lines `start` to `end` of the file's text, to become `replacement`.

    The replacement has no line end after its last line, and the indentation of the region, which begins at column 0;
    "" takes the lines away.
    """

    rule: str  # a rule's name
    start: int
    end: int
    replacement: str
    reason: str


def advice_schema(region: Region) -> dict[str, Any]:
    """The JSON schema of an answer about this region. Lines are shown numbers."""
    last = shown_number(region, region.end)
    return _schema(max(_SHORT, 1 << (last - 1).bit_length()))


@cache
def _schema(last_line: int) -> dict[str, Any]:
    line = {"type": "integer", "minimum": 1, "maximum": last_line}
    finding = {
        "type": "object",
        "properties": {
            "rule": {"type": "string", "enum": [rule.name for rule in rules()]},
            "start_line": line,
            "end_line": line,
            "replacement": {"type": "string", "maxLength": MAX_REPLACEMENT},
            "reason": {"type": "string", "maxLength": MAX_REASON},
        },
        "required": list(_FIELDS),
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"findings": {"type": "array", "maxItems": MAX_FINDINGS, "items": finding}},
        "required": ["findings"],
        "additionalProperties": False,
    }


def answer(advice: Iterable[Advice], region: Region) -> str:
    """The advice as JSON: what a model is trained to answer, and what `parse` reads back."""
    findings = [
        {
            "rule": a.rule,
            "start_line": shown_number(region, a.start),
            "end_line": shown_number(region, a.end),
            "replacement": a.replacement,
            "reason": a.reason,
        }
        for a in advice
    ]
    return json.dumps({"findings": findings}, ensure_ascii=False)


def parse(text: str, region: Region) -> tuple[Advice, ...]:
    """The findings of an answer that conform to the schema and name lines that were shown without a gap."""
    return _read(text, region)[0]


def is_valid(text: str, region: Region) -> bool:
    """Does all of an answer conform to the schema?"""
    return _read(text, region)[1]


def _read(text: str, region: Region) -> tuple[tuple[Advice, ...], bool]:
    if len(text) > _LONGEST:
        return (), False
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return (), False
    if not isinstance(data, dict) or set(data) != {"findings"} or not isinstance(data["findings"], list):
        return (), False
    items = data["findings"]
    offered = frozenset(line.number for line in region.lines)
    names = _names()
    found: list[Advice] = []
    valid = len(items) <= MAX_FINDINGS
    for item in items[:MAX_FINDINGS]:
        advice = _advice(item, region, names)
        conforms = advice is not None and advice.start in offered and advice.end in offered
        valid = valid and conforms
        # JSON Schema cannot say that the lines between the two must be there as well, or which comes first.
        if advice is not None and conforms and offered.issuperset(range(advice.start, advice.end + 1)):
            found += [advice] if advice.start <= advice.end else []
    return tuple(found), valid


@cache
def _names() -> frozenset[str]:
    return frozenset(rule.name for rule in rules())


def _advice(item: object, region: Region, names: frozenset[str]) -> Advice | None:
    if not isinstance(item, dict) or set(item) != set(_FIELDS):
        return None
    rule, start, end, replacement, reason = (item[field] for field in _FIELDS)
    # type() and not isinstance(): True is an int, and 1.0 is equal to one.
    if type(start) is not int or type(end) is not int or not isinstance(rule, str) or rule not in names:
        return None
    if not (isinstance(replacement, str) and isinstance(reason, str)):
        return None
    if len(replacement) > MAX_REPLACEMENT or len(reason) > MAX_REASON:
        return None
    return Advice(rule, file_line(region, start), file_line(region, end), replacement, reason)
