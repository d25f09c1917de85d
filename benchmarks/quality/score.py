"""Scores reviews against labels: pure functions over cases and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ptopt.findings import Review
from training.evaluation.labels import finds, wanted


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
    problems = wanted(case)
    mine = [f for f in review.findings if f.path == case["path"]]
    found = sum(any(finds(f, *problem) for f in mine) for problem in problems)
    return Outcome(
        name=case["name"],
        label=case["label"],
        category=case["category"],
        difficulty=case.get("difficulty") or "",
        comments=len(review.findings),
        found=found,
        wanted=len(problems),
        said=tuple(f"{f.path}:{f.span.start} {f.name}" for f in review.findings),
    )


def table(outcomes: list[Outcome], key: str) -> list[tuple[str, int, int]]:
    """(value of `key`, found, wanted) over the problem cases, most wanted first."""
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for one in outcomes:
        if one.label == "problem":
            found[getattr(one, key)] += one.found
            wanted[getattr(one, key)] += one.wanted
    return [(value, found[value], n) for value, n in sorted(wanted.items(), key=lambda kv: (-kv[1], kv[0]))]
