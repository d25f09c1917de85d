"""Fit the strengths of the prior of `feedback.calibration` to judged comments.

Each comment is predicted from the ranker's score and the verdicts on other commits of its repository, as if these were
votes. The strengths with the least log loss on the parts that the ranker was fitted on are best; the last lines are of the
part that nothing was fitted on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import product

from benchmarks.learning import rows
from benchmarks.learning.rows import Candidate, family_of
from feedback.calibration import STRENGTHS, offsets
from feedback.labels import Opinion
from ptopt.learned import shifted

_GRID = ((10.0, 20.0, 40.0, 80.0), (5.0, 10.0, 20.0, 40.0), (1.5, 2.0, 3.0, 4.0, 6.0, 8.0))
_NEVER = 1e9  # so strong a prior that votes move nothing
_WHEN = datetime(2026, 1, 1, tzinfo=timezone.utc)
Strengths = tuple[float, float, float]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning prior", description=__doc__)
    parser.parse_args(arguments)
    seen, unseen = rows.read(rows.SEEN), rows.read(rows.UNSEEN)
    tried = sorted((loss(seen, strengths), strengths) for strengths in product(*_GRID))
    print(f"{'repository':>12}{'family':>8}{'rule':>6}{'log loss':>10}   (work and calibrate)")
    for value, strengths in tried[:5]:
        print(f"{strengths[0]:12g}{strengths[1]:8g}{strengths[2]:6g}{value:10.4f}")
    for name, strengths in (("no feedback", (_NEVER,) * 3), ("fitted", tried[0][1]), ("in use", STRENGTHS)):
        print(
            f"{name:>14}: work and calibrate {loss(seen, strengths):.4f}, judge {loss(unseen, strengths):.4f}"
        )
    return 0


def loss(by_repo: Mapping[str, Sequence[Candidate]], strengths: Strengths) -> float:
    """Log loss of each comment, given those of the other commits of its repository."""
    losses = []
    for candidates in by_repo.values():
        for sha in sorted({c.sha for c in candidates}):
            known = offsets([_opinion(c) for c in candidates if c.sha != sha], family_of, strengths)
            for one in candidates:
                if one.sha == sha:
                    above = known.families.get(family_of(one.rule), known.repository)
                    predicted = shifted(one.score, known.rules.get(one.rule, above))
                    losses.append(-math.log(max(predicted if one.useful else 1 - predicted, 1e-9)))
    return math.fsum(losses) / len(losses)


def _opinion(one: Candidate) -> Opinion:
    return Opinion(0, 0, one.rule, "", True, True, float(one.useful), 1.0, one.score, _WHEN)
