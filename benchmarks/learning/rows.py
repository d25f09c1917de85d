"""Judged comments with the score that the shipped ranker gives them: what simulated people vote on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.quality.common import read_rows
from ptopt.ranker.model import ranker
from ptopt.rules import find_rule

_VERDICTS = Path(__file__).parents[1] / "quality" / "data" / "verdicts"
SEEN, UNSEEN = ("work", "calibrate"), ("judge",)  # parts that the ranker was fitted on, and not


@dataclass(frozen=True, slots=True)
class Candidate:
    """A comment that a rule would make. Useful is R: right, and a maintainer who cares would act."""

    repo: str
    sha: str
    rule: str
    score: float
    useful: bool


def read(parts: Sequence[str]) -> dict[str, list[Candidate]]:
    """The decided comments by repository. Rows whose verdict is about the year of the commit are left out."""
    weigher = ranker()
    found: defaultdict[str, list[Candidate]] = defaultdict(list)
    for row in read_rows([_VERDICTS / f"{part}.jsonl" for part in parts]):
        if row.get("features") and not row.get("dated") and row["verdict"] in "RTW":
            score = weigher.useful.probability(row["features"])
            found[row["repo"]].append(
                Candidate(row["repo"], row["sha"], row["rule"], score, row["verdict"] == "R")
            )
    return dict(sorted(found.items()))


@cache
def family_of(rule: str) -> str:
    known = find_rule(rule)
    return "" if known is None else known.family
