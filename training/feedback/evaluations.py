"""What is never learned from feedback: the repositories, commits and findings that something is measured on.

`benchmarks/quality/data` is read as data, nothing of it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "benchmarks" / "quality" / "data"
_MEASURED = ("verdicts/calibrate.jsonl", "verdicts/judge.jsonl")  # repositories that nothing is learned from
_CASES = ("fixes.jsonl", "clean.jsonl")


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The names of repositories in lower case, the commits, and the findings (`key`) of the evaluation sets."""

    repositories: frozenset[str]
    commits: frozenset[str]
    findings: frozenset[str]

    def holds(self, repository: str, commit: str, features: Mapping[str, float]) -> bool:
        """Is a comment of theirs? A fork has other names, and the same commits or findings."""
        return (
            repository.lower() in self.repositories
            or commit in self.commits
            or (bool(features) and key(features) in self.findings)
        )


def key(features: Mapping[str, float]) -> str:
    """The same for findings that the ranker cannot tell apart; the rule is among the features."""
    return json.dumps(
        {name: round(float(value), 6) for name, value in features.items() if value}, sort_keys=True
    )


@cache
def evaluations(folder: Path = DATA) -> Evaluations:
    """Of the labelled commits and judged comments that come with ptopt."""
    measured = [row for name in _MEASURED for row in _rows(folder / name)]
    cases = [row for name in _CASES for row in _rows(folder / name)]
    return Evaluations(
        frozenset(str(row["repo"]).lower() for row in measured),
        frozenset(
            str(row[field]) for row in (*measured, *cases) for field in ("sha", "parent") if row.get(field)
        ),
        frozenset(key(row["features"]) for row in measured if row.get("features")),
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)
