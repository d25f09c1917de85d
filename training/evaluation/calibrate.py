"""What a judge's log-odds are worth, fitted where the truth is known, and written beside the adapter only if it helps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut

from ptopt.model.calibration import Calibration, JudgeFit

_EDGE = 1e-4  # a confidence of 1 has no log-odds
_FREE = 1e6  # of two or three numbers, none needs holding back


def fit_on_held_out(truth: ArrayLike, log_odds: ArrayLike) -> JudgeFit | None:
    """The judge as a witness: its calibrated evidence is added to the rule's own log-odds.

    Fitted on held-out projects of a dataset. There the labels are those of the rules, so how far the rule itself is right
    cannot be learned: its weight is 1. None where all truths are the same, or where a higher score means less.
    """
    y, x = np.asarray(truth, bool), np.asarray(log_odds, float).reshape(-1, 1)
    if y.all() or not y.any():
        return None
    fit = LogisticRegression(C=_FREE).fit(x, y)
    slope, intercept = float(fit.coef_[0, 0]), float(fit.intercept_[0])
    if slope <= 0:
        return None
    return JudgeFit(round(intercept - float(logit(y.mean())), 6), 1.0, round(slope, 6))


def fit_on_cases(truth: ArrayLike, confidence: ArrayLike, log_odds: ArrayLike) -> JudgeFit | None:
    """Logistic regression over the rule's confidence and the judge's log-odds. None where all truths are the same."""
    y = np.asarray(truth, bool)
    if y.all() or not y.any():
        return None
    fit = LogisticRegression().fit(_features(confidence, log_odds), y)
    (of_confidence, of_log_odds), intercept = fit.coef_[0], fit.intercept_[0]
    return JudgeFit(round(float(intercept), 6), round(float(of_confidence), 6), round(float(of_log_odds), 6))


def across_repositories(
    truth: ArrayLike, confidence: ArrayLike, log_odds: ArrayLike, repositories: Sequence[str]
) -> NDArray[np.float64]:
    """Probabilities of which each comes from a fit that did not see its repository; nan where there was no such fit."""
    y, c, x = np.asarray(truth, bool), np.asarray(confidence, float), np.asarray(log_odds, float)
    said = np.full(y.size, math.nan)
    if len(set(repositories)) < 2:
        return said
    for seen, held in LeaveOneGroupOut().split(x, y, list(repositories)):
        fit = fit_on_cases(y[seen], c[seen], x[seen])
        if fit is not None:
            calibration = Calibration(judge=fit)
            said[held] = [calibration.confidence("", a, b) for a, b in zip(c[held], x[held], strict=True)]
    return said


def write(folder: Path, calibration: Calibration, why: str, metrics: dict[str, Any]) -> None:
    """Put the calibration into an adapter folder, and say in its card what was measured and why this was decided."""
    _replace(folder / "calibration.json", calibration.to_json())
    place = folder / "card.json"
    card = json.loads(place.read_text(encoding="utf-8"))
    known = card.get("metrics")
    card["metrics"] = {**(known if isinstance(known, dict) else {}), **metrics}
    card["calibration"] = why
    _replace(place, json.dumps(card, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else f"# {card.get('name', folder.name)}\n"
    text = text.partition(_HEADING)[0].rstrip()
    _replace(readme, f"{text}\n\n{_HEADING}\n\n{why}\n")


_HEADING = "## What its word is worth"


def _features(confidence: ArrayLike, log_odds: ArrayLike) -> NDArray[np.float64]:
    prior = logit(np.clip(np.asarray(confidence, float), _EDGE, 1 - _EDGE))
    return np.column_stack([prior, np.asarray(log_odds, float)])


def _replace(place: Path, text: str) -> None:
    scratch = place.with_name(f".{place.name}.new")
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, place)
