"""Rules and a judge together: how they rank the remarks on real commits, and whether the judge may be enabled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptopt.config import Config
from ptopt.model.calibration import Calibration
from ptopt.ranker.model import threshold
from ptopt.ranking import rank
from training.evaluation.cases import Pool, Remark
from training.evaluation.metrics import (
    Interval,
    Rows,
    auc,
    average_precision,
    bootstrap,
    of_rows,
    precision_at_recall,
    share,
)

LEVELS = (0.25, 0.5, 0.75, 0.9)
_SHOWN_FROM = threshold(Config().min_confidence)


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well one way of ranking puts what is right first."""

    auc: Interval
    average_precision: Interval
    precision_at: dict[float, float]  # by recall of the right remarks in the pool
    gain: Interval | None = None  # in precision, at the recall of the default settings, over the rules alone


@dataclass(frozen=True, slots=True)
class Operating:
    """What the default settings show."""

    comments: int
    right: int
    wrong: int  # on commits and files that are clean
    found: int  # labelled problems of the commits
    wanted: int
    clean_commented: int
    clean: int


def confidences(
    remarks: Sequence[Remark], log_odds: Sequence[float | None], calibration: Calibration
) -> list[float]:
    """The combined confidence of each remark; without log-odds the rule's own."""
    return [
        r.finding.confidence
        if score is None
        else calibration.confidence(r.finding.name, r.finding.confidence, score)
        for r, score in zip(remarks, log_odds, strict=True)
    ]


def ranks(remarks: Sequence[Remark], confidence: Sequence[float]) -> NDArray[np.float64]:
    """The order of a review as scores."""
    sure = [dataclasses.replace(r.finding, confidence=c) for r, c in zip(remarks, confidence, strict=True)]
    return np.array([-rank(finding)[0] for finding in sure], float)


def known(remarks: Sequence[Remark], *, strict: bool) -> tuple[Rows, NDArray[np.bool_]]:
    """The rows to be scored and their truths. With `strict` a remark that the label does not confirm is wrong; else
    those of unknown truth are left out.
    """
    rows = [i for i, r in enumerate(remarks) if strict or r.truth is not None]
    return np.array(rows, np.int64), np.array([bool(remarks[i].truth) for i in rows], bool)


def ranking(
    pool: Pool, scores: ArrayLike, against: ArrayLike | None, *, strict: bool, resamples: int = 1000
) -> Ranking:
    """Scores of `pool.remarks`, with intervals over repositories; `against` are those of the rules alone."""
    rows, truth = known(pool.remarks, strict=strict)
    mine = np.asarray(scores, float)[rows]
    repositories = [pool.remarks[i].repository for i in rows]
    return Ranking(
        bootstrap(of_rows(auc, truth, mine), repositories, resamples=resamples),
        bootstrap(of_rows(average_precision, truth, mine), repositories, resamples=resamples),
        {level: precision_at_recall(truth, mine, level) for level in LEVELS},
        None if against is None else gain(pool, scores, against, strict=strict, resamples=resamples),
    )


def gain(
    pool: Pool, scores: ArrayLike, against: ArrayLike, *, strict: bool, resamples: int = 1000
) -> Interval:
    """Gain in precision over `against` (the rules alone), at the recall that these have at the default settings."""
    rows, truth = known(pool.remarks, strict=strict)
    shown = np.array([pool.remarks[i].shown for i in rows], bool)
    statistic = _gain(truth, np.asarray(scores, float)[rows], np.asarray(against, float)[rows], shown)
    return bootstrap(statistic, [pool.remarks[i].repository for i in rows], resamples=resamples)


def _gain(
    truth: NDArray[np.bool_], new: NDArray[np.float64], old: NDArray[np.float64], shown: NDArray[np.bool_]
) -> Callable[[Rows], float]:
    """The difference in precision at the recall that the default settings of the rules have on the same rows."""

    def statistic(rows: Rows) -> float:
        y = truth[rows]
        recall = share(int((y & shown[rows]).sum()), int(y.sum()))
        if math.isnan(recall) or recall == 0:
            return math.nan
        return precision_at_recall(y, new[rows], recall) - precision_at_recall(y, old[rows], recall)

    return statistic


def operating(pool: Pool, confidence: Sequence[float]) -> Operating:
    """What would be shown with these confidences: rules that are on, files that are reviewed, no budget."""
    shown = [r for r, c in zip(pool.remarks, confidence, strict=True) if r.allowed and c >= _SHOWN_FROM]
    return Operating(
        comments=len(shown),
        right=sum(r.truth is True for r in shown),
        wrong=sum(r.truth is False for r in shown),
        found=len({r.case for r in shown if r.truth and r.label == "problem"}),
        wanted=pool.wanted,
        clean_commented=len({r.case for r in shown if r.label == "clean"}),
        clean=pool.commits.get("clean", 0),
    )


def helps(gained: Interval | None, before: Operating, after: Operating) -> bool:
    """May the judge be enabled? Only when the gain in precision is above zero in the whole of its interval, and the
    default settings find no less with it than without.
    """
    return (
        gained is not None and not math.isnan(gained.low) and gained.low > 0 and after.found >= before.found
    )
