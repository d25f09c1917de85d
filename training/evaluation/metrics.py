"""Metrics of a judge and of an adviser, and bootstrap intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, precision_recall_curve

Rows = NDArray[np.int64]
NEAR = 3  # lines by which the place of a finding may be off
_ENOUGH = 5  # yes's and no's that a rule needs for an AUC of its own


# -- a judge: a score for each question, yes or no in truth ------------------------------------------------


def auc(truth: ArrayLike, scores: ArrayLike) -> float:
    """Area under the ROC curve; nan when all truths are the same.

    By ranks, which is twenty times faster than drawing the curve: the bootstrap computes it thousands of times.
    """
    y = np.asarray(truth, bool)
    yes, no = int(y.sum()), int((~y).sum())
    if not (yes and no):
        return math.nan
    return float((rankdata(scores)[y].sum() - yes * (yes + 1) / 2) / (yes * no))


def average_precision(truth: ArrayLike, scores: ArrayLike) -> float:
    """Area under the precision-recall curve; nan without a yes."""
    y = np.asarray(truth, bool)
    return float(average_precision_score(y, scores)) if y.any() else math.nan


def precision_at_recall(truth: ArrayLike, scores: ArrayLike, recall: float) -> float:
    """The best precision at a threshold that reaches `recall` (above 0); nan without a yes. Equal scores go together."""
    y = np.asarray(truth, bool)
    if not y.any():
        return math.nan
    precision, reached, _ = precision_recall_curve(y, scores)
    return float(precision[reached >= recall - 1e-9].max())


def auc_within_rules(truth: ArrayLike, scores: ArrayLike, rules: Sequence[str]) -> float:
    """Mean AUC over the rules with enough labels: how well a judge ranks when the rule itself tells nothing."""
    y, s, names = np.asarray(truth, bool), np.asarray(scores, float), np.asarray(rules)
    each = []
    for name in np.unique(names):
        mine = names == name
        if min(y[mine].sum(), (~y[mine]).sum()) >= _ENOUGH:
            each.append(auc(y[mine], s[mine]))
    return float(np.mean(each)) if each else math.nan


def calibration_error(truth: ArrayLike, log_odds: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error, over bins of equal size."""
    y, p = np.asarray(truth, float), expit(np.asarray(log_odds, float))
    if not y.size:
        return math.nan
    groups = np.array_split(np.argsort(p, kind="stable"), min(bins, y.size))
    return float(sum(abs(y[g].mean() - p[g].mean()) * g.size for g in groups) / y.size)


# -- an adviser: findings with places ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A rule and the lines it speaks of, both ends included."""

    rule: str
    start: int
    end: int

    def meets(self, other: Place, near: int = NEAR) -> bool:
        """The same rule at the same lines, give or take `near`?"""
        return self.rule == other.rule and self.start <= other.end + near and other.start <= self.end + near


def matched(found: Sequence[Place], wanted: Sequence[Place], near: int = NEAR) -> int:
    """How many of the wanted places were found, each by a finding of its own."""
    meets = np.array([[a.meets(b, near) for b in wanted] for a in found], bool).reshape(
        len(found), len(wanted)
    )
    if not meets.any():
        return 0
    return int((maximum_bipartite_matching(csr_matrix(meets), perm_type="column") >= 0).sum())


def share(part: float, whole: float) -> float:
    """A part of a whole; nan of nothing."""
    return part / whole if whole else math.nan


# -- intervals ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """A number, and the range that holds it in `level` of the resamples. `clusters`: how many things were drawn."""

    value: float
    low: float
    high: float
    clusters: int
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(
    statistic: Callable[[Rows], float], clusters: Sequence[Hashable], *, resamples: int = 1000, seed: int = 0,
    level: float = 0.95,
) -> Interval:  # fmt: skip
    """Percentile interval of a statistic of row numbers, drawing whole clusters (projects, repositories).

    A difference of two systems is paired when `statistic` computes both of the same rows. Resamples in which the statistic
    is undefined (nan) are left out; where fewer than half are left, or there is one cluster, the bounds are nan.
    """
    rows_of: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, cluster in enumerate(clusters):
        rows_of[cluster].append(row)
    groups = [np.array(rows, np.int64) for rows in rows_of.values()]
    value = statistic(np.arange(len(clusters))) if groups else math.nan
    if len(groups) < 2:
        return Interval(value, math.nan, math.nan, len(groups), level)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        picked = rng.integers(len(groups), size=len(groups))
        drawn.append(statistic(np.concatenate([groups[i] for i in picked])))
    known = np.array([d for d in drawn if not math.isnan(d)])
    if known.size < resamples / 2:
        return Interval(value, math.nan, math.nan, len(groups), level)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), len(groups), level)


def of_rows(
    metric: Callable[[NDArray[np.bool_], NDArray[np.float64]], float], truth: ArrayLike, scores: ArrayLike
) -> Callable[[Rows], float]:
    """A metric of a judge as a statistic of row numbers."""
    y, s = np.asarray(truth, bool), np.asarray(scores, float)
    return lambda rows: metric(y[rows], s[rows])


def difference(
    metric: Callable[[NDArray[np.bool_], NDArray[np.float64]], float],
    truth: ArrayLike,
    scores: ArrayLike,
    against: ArrayLike,
) -> Callable[[Rows], float]:
    """How much better `scores` are than `against` on the same rows."""
    ours, theirs = of_rows(metric, truth, scores), of_rows(metric, truth, against)
    return lambda rows: ours(rows) - theirs(rows)
