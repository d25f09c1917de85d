"""Scores reviews against labels: pure functions over cases and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from ptopt.findings import Review
from training.evaluation.labels import NEAR, finds, wanted

REGRESSIONS = "regressions"  # the family of rules on measures that the change takes out


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
    mode: str = ""  # how the change was made from the label
    found_by_regressions: int = 0  # by rules of this family
    found_by_others: int = 0


@dataclass(frozen=True)
class Report:
    """What another tool says of a file."""

    path: str
    start: int
    end: int
    name: str


def outcome(case: dict[str, Any], review: Review) -> Outcome:
    """Compare the review of a case with its label (a line of labels.jsonl)."""
    problems = wanted(case)
    mine = [f for f in review.findings if f.path == case["path"]]
    by = [{f.family == REGRESSIONS for f in mine if finds(f, *problem)} for problem in problems]
    return Outcome(
        name=case["name"],
        label=case["label"],
        category=case["category"],
        difficulty=case.get("difficulty") or "",
        comments=len(review.findings),
        found=sum(map(bool, by)),
        wanted=len(problems),
        said=tuple(f"{f.path}:{f.span.start} {f.name}" for f in review.findings),
        mode=case.get("mode") or "",
        found_by_regressions=sum(True in kinds for kinds in by),
        found_by_others=sum(False in kinds for kinds in by),
    )


def tool_outcome(case: dict[str, Any], reports: Sequence[Report]) -> Outcome:
    """Compare the reports of another tool with the label of a case: whatever it says near the place counts as found."""
    problems = wanted(case)
    near = [r for r in reports if r.path == case["path"]]
    found = sum(
        any(r.start <= end + NEAR and r.end >= start - NEAR for r in near) for _, start, end in problems
    )
    return Outcome(
        name=case["name"],
        label=case["label"],
        category=case["category"],
        difficulty=case.get("difficulty") or "",
        comments=len(reports),
        found=found,
        wanted=len(problems),
        said=tuple(f"{r.path}:{r.start} {r.name}" for r in reports),
        mode=case.get("mode") or "",
        found_by_others=found,
    )


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    if not whole:
        return 0.0, 1.0
    z = 1.96
    share, width = part / whole, z * z / whole
    middle = (share + width / 2) / (1 + width)
    half = z * sqrt(share * (1 - share) / whole + width / whole / 4) / (1 + width)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(outcomes: Sequence[Outcome], key: str) -> list[tuple[str, int, int]]:
    """(value of `key`, found, wanted) over the problem cases, most wanted first."""
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for one in outcomes:
        if one.label == "problem":
            found[getattr(one, key)] += one.found
            wanted[getattr(one, key)] += one.wanted
    return [(value, found[value], n) for value, n in sorted(wanted.items(), key=lambda kv: (-kv[1], kv[0]))]
