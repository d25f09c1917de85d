"""Does a judge order comments better than the ranker alone? On comments that people judged, of repositories nothing was fitted on.

The ranker and the judges learned from *work*; how much the word of a judge counts beside the ranker's is fitted on
*calibrate*; *judge* gives the result. What a judge is asked is what a review asks it: the code is read from clones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.region import Region
from ptopt.ranker.model import Ranker
from ptopt.source.file import SourceFile
from training.dataset.verdicts import each_clone, judged_sample, located, verdict_rows
from training.dataset.views import judge_regions
from training.evaluation.calibrate import fit_on_cases
from training.evaluation.judges import Judge, LabelledRegion, log_odds
from training.evaluation.metrics import (
    Interval,
    Rows,
    auc,
    bootstrap,
    difference,
    of_rows,
    precision_at_recall,
    share,
)
from training.progress import Progress
from training.ranker.rows import Row, read_row
from training.sources.git import Clone

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
RANKER = "ranker"


@dataclass(frozen=True, slots=True)
class Comment:
    """A judged comment, and what a judge is asked about it: None where the code is not at hand."""

    row: Row
    question: LabelledRegion | None


@dataclass(frozen=True, slots=True)
class Result:
    """A way to order the comments of *judge*. The gains are over the ranker alone, on the same comments.

    `gain` is in precision at the recall that the ranker has where comments are made today.
    """

    auc: Interval
    auc_gain: Interval | None
    gain: Interval | None
    comments: int  # that would be made
    useful: int
    wrong: int
    fit: JudgeFit | None = None
    makes_comments: bool = True  # a judge alone has no threshold

    @property
    def helps(self) -> bool:
        """More precise than the ranker alone in the whole of the interval?"""
        return self.gain is not None and self.gain.low > 0


def read_comments(
    file: Path, clones: Path, left_out: Counter[str], progress: Progress = lambda *_: None
) -> list[Comment]:
    """The decided comments of a file of verdicts that have features; counts in `left_out` why a question is missing."""
    rows = [row for row in verdict_rows(file) if read_row(row) is not None]
    asked: dict[int, LabelledRegion] = {}

    def read(clone: Clone, several: Sequence[dict[str, Any]]) -> None:
        for row, source, region in located(clone, several, left_out):
            question = _question(row, source, region, left_out)
            if question is not None:
                asked[id(row)] = question

    each_clone(rows, clones, read, left_out, progress)
    known = ((read_row(row), asked.get(id(row))) for row in rows)
    return [Comment(row, question) for row, question in known if row is not None]


def _question(
    row: Mapping[str, Any], source: SourceFile, region: Region, left_out: Counter[str]
) -> LabelledRegion | None:
    sample = judged_sample([{**row, "split": ""}], source, region, "", left_out)
    found = judge_regions(sample) if sample is not None else []
    if not found:
        return None
    return LabelledRegion(found[0], {row["rule"]: row["verdict"] == "R"}, row["repo"])


def ablation(
    ranker: Ranker, judges: Mapping[str, Judge], calibrate: Sequence[Comment], held: Sequence[Comment],
    resamples: int = 2000, progress: Progress | None = None,
) -> dict[str, Result]:  # fmt: skip
    """Each way to order the comments of *judge* (`held`), by name; the first is the ranker alone."""
    alone = _worth(ranker, held)
    of_held = _Measured(ranker, held, alone, resamples)
    results = {RANKER: of_held.result(alone)}
    truth, before = _truth(calibrate), _worth(ranker, calibrate)
    for name, judge in judges.items():
        fitted_on = _odds(judge, calibrate, f"{name}: calibrate", progress)
        asked = ~np.isnan(fitted_on)
        fit = fit_on_cases(truth[asked], before[asked], fitted_on[asked])
        odds = _odds(judge, held, f"{name}: judge", progress)
        results[f"{name} alone"] = of_held.result(np.nan_to_num(odds), makes_comments=False)
        together = Calibration(judge=fit)
        scores = [
            worth if np.isnan(said) else together.confidence(comment.row.rule, worth, said)
            for comment, worth, said in zip(held, alone, odds, strict=True)
        ]
        results[f"{RANKER} and {name}"] = of_held.result(np.array(scores, float), fit)
    return results


def _truth(comments: Sequence[Comment]) -> Flags:
    return np.array([comment.row.useful for comment in comments], bool)


def _worth(ranker: Ranker, comments: Sequence[Comment]) -> Scores:
    return np.array([ranker.worth(comment.row.features) for comment in comments], float)


def _odds(judge: Judge, comments: Sequence[Comment], stage: str, progress: Progress | None) -> Scores:
    """The log-odds of each comment; nan where there is no question."""
    questions = [comment.question for comment in comments]
    found = iter(log_odds(judge, [q for q in questions if q is not None], stage, progress).tolist())
    return np.array([np.nan if q is None else next(found) for q in questions], float)


class _Measured:
    """The comments of one part, and how the ranker alone orders them."""

    def __init__(self, ranker: Ranker, comments: Sequence[Comment], alone: Scores, resamples: int) -> None:
        self._truth, self._alone, self._resamples = _truth(comments), alone, resamples
        self._right = np.array([comment.row.right for comment in comments], bool)
        self._sure = np.array([ranker.is_sure(comment.row.features) for comment in comments], bool)
        self._repositories = [comment.row.repo for comment in comments]
        self._threshold = ranker.threshold

    def result(self, scores: Scores, fit: JudgeFit | None = None, *, makes_comments: bool = True) -> Result:
        made = self._sure & (scores >= self._threshold) & makes_comments
        other = scores is not self._alone
        return Result(
            self._interval(of_rows(auc, self._truth, scores)),
            self._interval(difference(auc, self._truth, scores, self._alone)) if other else None,
            self._interval(self._precision_gain(scores)) if other else None,
            int(made.sum()),
            int((made & self._truth).sum()),
            int((made & ~self._right).sum()),
            fit,
            makes_comments,
        )

    def _interval(self, statistic: Callable[[Rows], float]) -> Interval:
        return bootstrap(statistic, self._repositories, resamples=self._resamples)

    def _precision_gain(self, scores: Scores) -> Callable[[Rows], float]:
        """Among comments that the ranker is sure of: the difference in precision, at the recall of those that it makes."""
        truth, sure, alone, made = self._truth, self._sure, self._alone, self._alone >= self._threshold

        def statistic(rows: Rows) -> float:
            kept = rows[sure[rows]]
            y = truth[kept]
            recall = share(int((y & made[kept]).sum()), int(y.sum()))
            if not recall > 0:
                return math.nan
            return precision_at_recall(y, scores[kept], recall) - precision_at_recall(y, alone[kept], recall)

        return statistic


def table(results: Mapping[str, Result], held: Sequence[Comment]) -> str:
    """The results as a table of Markdown, and the counts above it."""
    asked = sum(comment.question is not None for comment in held)
    useful = int(_truth(held).sum())
    counted = (
        f"judge: {len(held)} comments of {len({c.row.repo for c in held})} repositories, {useful} useful"
    )
    lines = [
        f"{counted}; the code of {asked} could be read",
        "",
        "| ordered by | AUC | gain in AUC | gain in precision at the recall of the ranker | comments | useful | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        gains = " | ".join("–" if gain is None else str(gain) for gain in (result.auc_gain, result.gain))
        counts = (
            f"{result.comments} | {result.useful} | {result.wrong}" if result.makes_comments else "– | – | –"
        )
        lines.append(f"| {name} | {result.auc} | {gains} | {counts} |")
    for name, result in results.items():
        if result.fit is not None:
            fit = result.fit
            lines.append(
                f"\n{name}: log-odds = {fit.intercept:.2f} + {fit.of_confidence:.2f} of the ranker's "
                f"+ {fit.of_log_odds:.2f} of the judge's; {'better' if result.helps else 'not better'} than the ranker alone"
            )
    return "\n".join(lines)
