"""A whole evaluation: all judges on all data, as values for the report."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.region import JUDGE_TOKENS
from training.dataset.rows import JUDGED
from training.evaluation.baselines import Prior, TokenClassifier
from training.evaluation.calibrate import across_repositories, fit_on_held_out
from training.evaluation.cases import Pool
from training.evaluation.combine import (
    Operating,
    Ranking,
    confidences,
    gain,
    helps,
    operating,
    ranking,
    ranks,
)
from training.evaluation.judges import Judge, LabelledRegion, Targets, log_odds
from training.evaluation.metrics import (
    Interval,
    auc,
    auc_within_rules,
    average_precision,
    bootstrap,
    calibration_error,
    difference,
    of_rows,
    precision_at_recall,
)
from training.evaluation.synthetic import AdviceCounts, advise, questions, select_samples
from training.progress import Progress

RULES, PRIOR, WORDS, BASE, TUNED = (
    "rules alone",
    "rule prior",
    "TF-IDF + logistic regression",
    "base model",
    "fine-tuned",
)
RECALLS = (0.5, 0.8, 0.9)
ENOUGH = 20  # verdicts of people, yes and no, for a fit on these alone


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read. None: all there is."""

    judged: int | None = 300  # samples of the validation and of the test split that judges are asked about
    learned: int | None = 4000  # samples that the baselines are fitted on
    advised: int | None = 40  # samples that findings are asked for: each takes seconds on a CPU
    cases: int | None = None
    resamples: int = 1000


@dataclass(frozen=True, slots=True)
class JudgeMetrics:
    """A judge on the held-out projects."""

    auc: Interval
    auc_within_rules: float
    average_precision: float
    precision_at: dict[float, float]
    calibration_error: float
    auc_by_kind: dict[str, float]  # yes's of the kind against all no's of real code
    over: dict[str, Interval]  # gain in AUC over the other judges


@dataclass(frozen=True, slots=True)
class CaseMetrics:
    """A judge on real commits, alone and with the rules. `strict` takes what no label confirms as wrong."""

    alone: Interval
    strict: Ranking
    certain: Ranking
    across: Interval  # the gain (certain) of a fit that never saw the repository it is scored on
    at_default: Operating
    words: Interval
    words_within_rules: float
    fit: JudgeFit | None
    helps: bool


@dataclass(frozen=True, slots=True)
class RuleMetrics:
    """The rules alone on real commits."""

    strict: Ranking
    certain: Ranking
    at_default: Operating


@dataclass(slots=True)
class Study:
    """All that was measured; `scores` are for the plots."""

    questions: int = 0
    right: int = 0
    projects: int = 0
    judged: dict[str, JudgeMetrics] = field(default_factory=dict)
    advised: dict[str, AdviceCounts] = field(default_factory=dict)
    advised_held_out: AdviceCounts | None = None  # of the fine-tuned model, on the validation split
    pool: dict[str, Any] = field(default_factory=dict)
    rules: RuleMetrics | None = None
    cases: dict[str, CaseMetrics] = field(default_factory=dict)
    truth: NDArray[np.bool_] = field(default_factory=lambda: np.array([], bool))
    scores: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    curves: dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]] = field(default_factory=dict)


def study(
    data: Path, models: dict[str, Advisor], pool: Pool | None, sizes: Sizes, progress: Progress | None = None
) -> Study:
    """Fit the baselines, and compare all judges on the same questions.

    `models` by name, `BASE` and `TUNED`; may be empty.
    """
    found = Study()
    learned = questions(select_samples(data, "train", sizes.learned), "reading train", progress)
    held = questions(select_samples(data, "validation", sizes.judged), "reading validation", progress)
    test = questions(select_samples(data, "test", sizes.judged), "reading test", progress)
    read = next((model.judge_tokens for model in models.values()), JUDGE_TOKENS)  # by all the same
    judges: dict[str, Judge] = {PRIOR: Prior(learned), WORDS: TokenClassifier(learned, tokens=read), **models}
    targets = Targets.of(test)
    found.truth = targets.truth
    found.questions, found.right = targets.truth.size, int(targets.truth.sum())
    found.projects = len(set(targets.projects))
    for name, judge in judges.items():
        found.scores[name] = log_odds(judge, test, f"{name}: test", progress)
    for name, scores in found.scores.items():
        others = {other: s for other, s in found.scores.items() if other != name}
        found.judged[name] = _judged(targets, scores, others, sizes.resamples)
    chosen = select_samples(data, "test", sizes.advised)
    for name, model in models.items():
        found.advised[name] = advise(model, chosen, f"{name}: findings", progress)
    if TUNED in models:
        chosen = select_samples(data, "validation", sizes.advised)
        found.advised_held_out = advise(models[TUNED], chosen, f"{TUNED}: findings for thresholds", progress)
    if pool is not None:
        _on_cases(found, judges, pool, held, sizes, progress)
    return found


def _judged(
    targets: Targets, scores: NDArray[np.float64], others: dict[str, NDArray[np.float64]], resamples: int
) -> JudgeMetrics:
    truth, kinds = targets.truth, np.array(targets.kinds)
    by_kind = {}
    for kind in sorted(set(targets.kinds)):
        rows = (truth & (kinds == kind)) | (~truth & (kinds != "mutated"))
        if (truth & (kinds == kind)).any():
            by_kind[kind] = auc(truth[rows], scores[rows])
    return JudgeMetrics(
        bootstrap(of_rows(auc, truth, scores), targets.projects, resamples=resamples),
        auc_within_rules(truth, scores, targets.rules),
        average_precision(truth, scores),
        {recall: precision_at_recall(truth, scores, recall) for recall in RECALLS},
        calibration_error(truth, scores),
        by_kind,
        {
            other: bootstrap(difference(auc, truth, scores, s), targets.projects, resamples=resamples)
            for other, s in others.items()
        },
    )


def _on_cases(
    found: Study,
    judges: dict[str, Judge],
    pool: Pool,
    held: Sequence[LabelledRegion],
    sizes: Sizes,
    progress: Progress | None,
) -> None:
    own = [r.finding.confidence for r in pool.remarks]
    plain = ranks(pool.remarks, own)
    found.pool = pool_counts(pool)
    found.rules = RuleMetrics(
        ranking(pool, plain, None, strict=True, resamples=sizes.resamples),
        ranking(pool, plain, None, strict=False, resamples=sizes.resamples),
        operating(pool, own),
    )
    found.curves[RULES] = _curve(pool, plain)
    held = by_people(held)
    truth_of_held = Targets.of(held).truth
    for name, judge in judges.items():
        fit = fit_on_held_out(truth_of_held, log_odds(judge, held, f"{name}: validation", progress))
        log_odds_of_remarks = _of_remarks(
            pool, log_odds(judge, pool.labelled_regions(), f"{name}: real commits", progress)
        )
        words = log_odds(judge, pool.words, f"{name}: words of real commits", progress)
        found.cases[name] = _with_rules(pool, log_odds_of_remarks, words, fit, own, plain, sizes.resamples)
        found.curves[name] = _curve(
            pool, ranks(pool.remarks, confidences(pool.remarks, log_odds_of_remarks, Calibration(judge=fit)))
        )


def by_people(held: Sequence[LabelledRegion]) -> list[LabelledRegion]:
    """Those whose labels are verdicts of people, where there are enough of them: the others are the rules' own."""
    judged = [one for one in held if one.kind == JUDGED]
    truth = Targets.of(judged).truth
    return judged if min(int(truth.sum()), int((~truth).sum())) >= ENOUGH else list(held)


def _with_rules(
    pool: Pool, log_odds_of_remarks: list[float | None], words: NDArray[np.float64], fit: JudgeFit | None, own: list[float],
    plain: NDArray[np.float64], resamples: int,
) -> CaseMetrics:  # fmt: skip
    together = confidences(pool.remarks, log_odds_of_remarks, Calibration(judge=fit))
    scores = ranks(pool.remarks, together)
    certain = ranking(pool, scores, plain, strict=False, resamples=resamples)
    at_default, before = operating(pool, together), operating(pool, own)
    alone = np.array([0.0 if s is None else s for s in log_odds_of_remarks], float)
    targets = Targets.of(pool.words)
    return CaseMetrics(
        ranking(pool, alone, None, strict=True, resamples=resamples).auc,
        ranking(pool, scores, plain, strict=True, resamples=resamples),
        certain,
        _across(pool, log_odds_of_remarks, own, plain, resamples),
        at_default,
        bootstrap(of_rows(auc, targets.truth, words), targets.projects, resamples=resamples),
        auc_within_rules(targets.truth, words, targets.rules),
        fit,
        fit is not None and helps(certain.gain, before, at_default),
    )


def _across(
    pool: Pool,
    log_odds_of_remarks: list[float | None],
    own: list[float],
    plain: NDArray[np.float64],
    resamples: int,
) -> Interval:
    """The gain with a fit on the other repositories, for each repository in turn.

    It learns from what is certain, as it is scored on; a remark without a region keeps its confidence.
    """
    judged = [
        (i, r, s) for i, (r, s) in enumerate(zip(pool.remarks, log_odds_of_remarks, strict=True)) if s is not None and r.truth is not None
    ]  # fmt: skip
    fitted = across_repositories(
        [r.truth is True for _, r, _ in judged],
        [own[i] for i, _, _ in judged],
        [s for _, _, s in judged],
        [r.repository for _, r, _ in judged],
    )
    filled = list(own)
    for (i, _, _), confidence in zip(judged, fitted.tolist(), strict=True):
        if not math.isnan(confidence):
            filled[i] = confidence
    return gain(pool, ranks(pool.remarks, filled), plain, strict=False, resamples=resamples)


def _of_remarks(pool: Pool, scores: NDArray[np.float64]) -> list[float | None]:
    values = iter(scores.tolist())
    return [None if r.region is None else next(values) for r in pool.remarks]


def _curve(pool: Pool, scores: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    return np.array([bool(r.truth) for r in pool.remarks], bool), scores


def pool_counts(pool: Pool) -> dict[str, Any]:
    """Counts of the remarks by truth and confidence."""
    bands: dict[str, list[int]] = {}
    for r in pool.remarks:
        band = bands.setdefault(f"{int(r.finding.confidence * 10 + 1e-9) / 10:.1f}", [0, 0, 0])
        band[0 if r.truth else 1 if r.truth is False else 2] += 1
    shown = [r for r in pool.remarks if r.shown]
    return {
        "commits": pool.commits,
        "remarks": len(pool.remarks),
        "right": sum(r.truth is True for r in pool.remarks),
        "wrong": sum(r.truth is False for r in pool.remarks),
        "unknown": sum(r.truth is None for r in pool.remarks),
        "by_confidence": dict(sorted(bands.items())),
        "on_clean_commits": sum(r.label == "clean" for r in pool.remarks),
        "shown_and_wrong": sum(r.truth is False for r in shown),
        "right_and_not_shown": sum(r.truth is True and not r.shown for r in pool.remarks),
        "words": sum(len(a.truth) for a in pool.words),
        "words_right": sum(sum(a.truth.values()) for a in pool.words),
    }


def hash_of(place: Path) -> str:
    return hashlib.sha256(place.read_bytes()).hexdigest()


def plain_values(found: Study) -> dict[str, Any]:
    """The study without its arrays, for JSON; what is not a number becomes null."""
    names = [f.name for f in dataclasses.fields(found) if f.name not in ("truth", "scores", "curves")]
    values = {name: getattr(found, name) for name in names}
    cleaned: dict[str, Any] = _clean(values)
    return cleaned


def _clean(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _clean(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
