"""Judged comments with the score that the shipped ranker gives them: what simulated people vote on."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.quality.common import read_rows
from ptopt.learned import shifted
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


def with_other_tastes(
    by_repo: Mapping[str, Sequence[Candidate]], seed: int = 0, deviation: float = 1.5
) -> dict[str, list[Candidate]]:
    """The same comments, of which others are useful: each repository likes each rule more or less than the ranker does, by
    normally distributed log-odds, and a comment is useful with the probability that results."""
    found = {}
    for repo, candidates in by_repo.items():
        chance = random.Random(f"{seed} {repo}")
        likes = {rule: chance.gauss(0, deviation) for rule in sorted({c.rule for c in candidates})}
        found[repo] = [
            replace(c, useful=chance.random() < shifted(c.score, likes[c.rule])) for c in candidates
        ]
    return found


@cache
def family_of(rule: str) -> str:
    known = find_rule(rule)
    return "" if known is None else known.family
