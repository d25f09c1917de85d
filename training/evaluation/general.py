"""Calibration of a general model: what it may do, decided on *calibrate*, with examples from *work*.

Each decision is conservative: it needs a precision that is reached by the lower end of a 95 % interval, on projects that the fit
has not seen. The judge can only remove comments that the rules would make. What is not known to be right counts as wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut

from ptopt.model.advisor import Advisor
from ptopt.model.backends.general import GeneralBackend
from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.general import JUDGE_TOKENS, MAX_EXAMPLES, Example, General, example
from ptopt.ranker.model import threshold as shown_from
from training.dataset.rows import JUDGED, Sample
from training.evaluation.judges import Targets, log_odds
from training.evaluation.study import by_people
from training.evaluation.synthetic import AdviceCounts, advise, questions, select_samples
from training.evaluation.thresholds import PRECISION, SUPPORTED, at_least, fit_threshold
from training.progress import Progress

_EDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one task took, as the server counted: requests, tokens read and written."""

    requests: int
    read: int
    written: int

    def cost(self, price_in: float, price_out: float) -> float:
        """At prices of a million tokens."""
        return (self.read * price_in + self.written * price_out) / 1e6


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The file's content, the decisions in words, and what each task took."""

    general: General
    decisions: tuple[str, ...]
    tokens: dict[str, Tokens]


def calibrate(
    server: OpenAIBackend, model: str, data: Path, judged: int, advised: int, progress: Progress | None = None
) -> Calibrated:
    """Ask the model about so many samples of the validation split. Raises ModelUnavailableError."""
    examples = few_shot(select_samples(data, "train", None))
    advisor = Advisor(GeneralBackend(server, examples), Calibration.off(), judge_tokens=JUDGE_TOKENS)
    tokens: dict[str, Tokens] = {}
    before = server.usage.snapshot()

    def took(task: str) -> None:
        nonlocal before
        now = server.usage.snapshot()
        tokens[task] = Tokens(*(b - a for a, b in zip(before, now, strict=True)))
        before = now

    held = by_people(questions(select_samples(data, "validation", judged), "reading", progress))
    targets = Targets.of(held)
    odds = log_odds(advisor, held, "judging", progress)
    took("judge")
    judge, words = judge_fit(targets.truth, odds, targets.projects)
    said = advise(advisor, select_samples(data, "validation", advised), "advising and explaining", progress)
    took("advise and explain")
    calibration, more = _own(Calibration(judge=judge), said)
    decisions = (words, *more)
    measured = {
        "questions": int(targets.truth.size),
        "right": int(targets.truth.sum()),
        "own findings": len(said.own),
        "own findings right": sum(own.right for own in said.own),
        "sentences": said.explained,
        "sentences supported": said.supported,
        "decisions": decisions,
    }
    return Calibrated(General(model, calibration, examples, measured), decisions, tokens)


def few_shot(work: Sequence[Sample]) -> tuple[Example, ...]:
    """Judged code of *work*, as many yes as no, of different rules as far as possible, the shortest first."""
    found: dict[bool, list[Example]] = {True: [], False: []}
    for sample in sorted((s for s in work if s.kind == JUDGED), key=lambda s: (len(s.text), s.hash)):
        answer = any(p.rule == sample.main_rule for p in sample.positives)
        one = example(sample.main_rule, sample.text, answer)
        if one is not None and all(other.rule != one.rule for other in found[answer]):
            found[answer].append(one)
    each = min(MAX_EXAMPLES // 2, *map(len, found.values()))
    return tuple(one for pair in zip(found[True][:each], found[False][:each], strict=True) for one in pair)


def judge_fit(
    truth: Sequence[bool] | np.ndarray, odds: Sequence[float] | np.ndarray, projects: Sequence[str]
) -> tuple[JudgeFit | None, str]:
    """A fit that makes of the model a veto, and the decision in words.

    What it leaves is right in `PRECISION` of the cases, by the lower end of the interval, in projects that were not fitted on.
    """
    y, x = np.asarray(truth, bool), np.asarray(odds, float).reshape(-1, 1)
    off = f"The judge is off: on {y.size} questions, {int(y.sum())} with the answer yes, "
    if y.all() or not y.any() or len(set(projects)) < 2:
        return None, off + "nothing can be fitted."
    held = np.full(y.size, math.nan)
    for seen, left in LeaveOneGroupOut().split(x, y, list(projects)):
        if y[seen].any() and not y[seen].all():
            held[left] = LogisticRegression().fit(x[seen], y[seen]).predict_proba(x[left])[:, 1]
    fit = LogisticRegression().fit(x, y)
    slope, intercept = float(fit.coef_[0, 0]), float(fit.intercept_[0])
    known = ~np.isnan(held)
    least = fit_threshold(held[known].tolist(), y[known].tolist()) if slope > 0 else None
    if least is None:
        return None, off + f"no threshold reaches a precision of {PRECISION:.0%}."
    kept = y[known & (held >= least)]
    # The threshold comes to stand where comments begin, and never below: then a probability is one of the fit.
    limit = shown_from(None)
    shift = min(0.0, float(logit(limit) - logit(min(max(least, _EDGE), 1 - _EDGE))))
    found = JudgeFit(round(intercept + shift, 6), 0.0, round(slope, 6), floor=limit)
    return found, (
        f"The judge is on, as a veto: from a probability of {least:.2f}, {int(kept.sum())} of {kept.size} are right in projects "
        f"it was not fitted on (of all, {int(y.sum())} of {y.size})."
    )


def _own(calibration: Calibration, said: AdviceCounts) -> tuple[Calibration, list[str]]:
    """The calibration with the thresholds of findings and sentences, and the decisions in words."""
    confidences = [calibration.own_confidence(own.rule, own.log_odds) for own in said.own]
    least = fit_threshold(confidences, [own.right for own in said.own])
    explains = at_least(said.supported, said.explained) >= SUPPORTED
    right = sum(own.right for own in said.own)
    none = f"not shown: no threshold reaches a precision of {PRECISION:.0%}"
    shown = none if least is None else f"shown from {least:.2f}"
    words = [
        f"Its own findings are {shown}; of {len(said.own)} that hold, {right} are right.",
        f"Its sentences are {'shown' if explains else 'not shown'}: {said.supported} of {said.explained} speak of the code only.",
    ]
    if calibration.judge is None and least is None and not explains:
        words.append("The model stays silent: nothing reached the precision that is needed.")
        return Calibration.off(), words
    measured_on = "validation split, counted by rule and line"
    return Calibration(calibration.judge, least, explains, measured_on=measured_on), words


def summary(found: Calibrated, price_in: float | None, price_out: float | None) -> str:
    """Decisions, then tokens for each answer, and their cost where prices are given."""
    kinds = Counter(one.answer for one in found.general.examples)
    lines = [*found.decisions, f"Examples from work: {kinds[True]} yes, {kinds[False]} no."]
    for task, took in found.tokens.items():
        number = took.requests
        if not number:
            continue
        line = f"{task}: {number} answers, {took.read / number:,.0f} tokens read and {took.written / number:,.0f} written each"
        if price_in is not None and price_out is not None:
            line += f", {took.cost(price_in, price_out) / number:.6f} each"
        lines.append(line)
    return "\n".join(lines)
