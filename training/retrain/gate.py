"""Whether a candidate may be tried: not worse on the frozen gold set, and better on feedback that it has not seen.

Both score the same comments, and whole repositories are drawn: the intervals are paired. The gold set is the part
*calibrate* of `benchmarks/quality/data`; a candidate learns nothing from it. The ranker that ptopt carries did: there a ranker that was
fitted to the same judged comments as the candidate, without the answers of people, stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptopt.ranker.model import Ranker
from training.evaluation.metrics import Interval, auc, bootstrap, difference
from training.ranker.rows import Row

MARGIN_AUC = 0.02  # by which the AUC on gold may be worse, and count as not worse
MARGIN_LOSS = 0.01  # the same of the log loss (nats)
FEWEST_HELD_OUT = 20  # answers that a comparison needs
_FEWEST_REPOSITORIES = 8  # to draw repositories; of fewer, pull requests are drawn
_EDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Scored:
    """Comments: were they useful, P(useful) by both [comments], and where they are from."""

    truth: NDArray[np.bool_]
    candidate: NDArray[np.float64]
    champion: NDArray[np.float64]
    repositories: Sequence[Hashable]
    pulls: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric of both on the same rows. `gain` is how much better the candidate is, with its paired 95 % interval."""

    rows: int
    candidate: float
    champion: float
    gain: Interval

    def figures(self) -> dict[str, Any]:
        found = {
            "rows": self.rows,
            "candidate": self.candidate,
            "champion": self.champion,
            "gain": asdict(self.gain),
        }
        return dict(_finite(found))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`refused` says why the candidate is not to be tried; "" where it is."""

    gold: dict[str, Comparison]  # "auc", "log loss"
    feedback: Comparison | None  # log loss; None where too little is held out
    refused: str

    def figures(self) -> dict[str, Any]:
        return {
            "gold": {name: found.figures() for name, found in self.gold.items()},
            "feedback": self.feedback.figures() if self.feedback is not None else None,
            "refused": self.refused,
        }


def evaluate(
    candidate: Ranker,
    champion: Ranker,
    gold: Sequence[Row],
    held_out: Sequence[Row],
    pulls: Sequence[Hashable],
    *,
    on_gold_alone: Ranker | None = None,
) -> Evaluation:
    """Compare two rankers. `pulls` are the pull requests of `held_out`; `on_gold_alone` stands in for a champion that has seen gold."""

    def scored(rows: Sequence[Row], against: Ranker, pulls: Sequence[Hashable]) -> Scored:
        ours, theirs = (
            np.array([ranker.useful.probability(row.features) for row in rows])
            for ranker in (candidate, against)
        )
        return Scored(np.array([row.useful for row in rows]), ours, theirs, [row.repo for row in rows], pulls)

    return compare(scored(gold, on_gold_alone or champion, ()), scored(held_out, champion, pulls))


def compare(gold: Scored, held_out: Scored) -> Evaluation:
    """Whether what scored both is to be tried."""
    on_gold = {
        "auc": _compare(auc, gold, gold.repositories),
        "log loss": _compare(_less_loss, gold, gold.repositories),
    }
    on_feedback = None
    if len(held_out.truth) >= FEWEST_HELD_OUT:
        few = len(set(held_out.repositories)) < _FEWEST_REPOSITORIES
        on_feedback = _compare(_less_loss, held_out, held_out.pulls if few else held_out.repositories)
    return Evaluation(on_gold, on_feedback, _why_refused(on_gold, on_feedback))


def _why_refused(gold: dict[str, Comparison], feedback: Comparison | None) -> str:
    for name, margin in (("auc", MARGIN_AUC), ("log loss", MARGIN_LOSS)):
        gain = gold[name].gain
        if not gain.low >= -margin:  # also where it is not a number
            return f"on gold the {name} may be worse by {-gain.low:.3f}, more than {margin}"
    if feedback is None:
        return f"fewer than {FEWEST_HELD_OUT} answers are held out"
    if not feedback.gain.low > 0:
        return f"on held-out feedback it is not better: log loss {feedback.gain}"
    return ""


def _compare(metric: Any, scored: Scored, clusters: Sequence[Hashable]) -> Comparison:
    truth, ours, theirs = scored.truth, scored.candidate, scored.champion
    gain = bootstrap(difference(metric, truth, ours, theirs), clusters)
    sign = -1 if metric is _less_loss else 1
    return Comparison(len(truth), sign * metric(truth, ours), sign * metric(truth, theirs), gain)


def _less_loss(truth: NDArray[np.bool_], probability: NDArray[np.float64]) -> float:
    """The log loss, negative: more is better."""
    if not truth.size:
        return math.nan
    kept = np.clip(probability, _EDGE, 1 - _EDGE)
    return float(np.where(truth, np.log(kept), np.log(1 - kept)).mean())


def _finite(value: Any) -> Any:
    """JSON has no nan."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    return value
