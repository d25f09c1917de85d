"""Scores reviews against labels: pure functions over cases and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks.quality.categories import fits
from ptopt.findings import Finding, Review

NEAR = 3  # lines around the labelled range in which a comment counts


@dataclass(frozen=True)
class Outcome:
    """What ptopt said of one case. `label` is "problem", "clean" or "whole"."""

    name: str
    label: str
    category: str
    difficulty: str
    comments: int
    found: int  # labelled problems found
    wanted: int  # labelled problems there are
    said: tuple[str, ...]  # "path:line rule" of each comment


def outcome(case: dict[str, Any], review: Review) -> Outcome:
    """Compare the review of a case with its label (a line of labels.jsonl)."""
    if case["label"] == "clean":
        wanted: list[tuple[str, int, int]] = []
    elif case["label"] == "whole":
        wanted = [(e["category"], e["line"], e["line"]) for e in case.get("expected") or ()]
    elif case.get("locality") == "file":
        wanted = [(case["category"], 1, 10**9)]
    else:
        wanted = [(case["category"], case["start"], case["end"])]
    mine = [f for f in review.findings if f.path == case["path"]]
    found = sum(any(_finds(f, category, start, end) for f in mine) for category, start, end in wanted)
    return Outcome(
        name=case["name"],
        label=case["label"],
        category=case["category"],
        difficulty=case.get("difficulty") or "",
        comments=len(review.findings),
        found=found,
        wanted=len(wanted),
        said=tuple(f"{f.path}:{f.span.start} {f.name}" for f in review.findings),
    )


def _finds(finding: Finding, category: str, start: int, end: int) -> bool:
    if not fits(category, finding.name, finding.family):
        return False
    places = [finding.span, *finding.also]
    return any(place.start <= end + NEAR and place.end >= start - NEAR for place in places)


def table(outcomes: list[Outcome], key: str) -> list[tuple[str, int, int]]:
    """(value of `key`, found, wanted) over the problem cases, most wanted first."""
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for one in outcomes:
        if one.label == "problem":
            found[getattr(one, key)] += one.found
            wanted[getattr(one, key)] += one.wanted
    return [(value, found[value], n) for value, n in sorted(wanted.items(), key=lambda kv: (-kv[1], kv[0]))]
