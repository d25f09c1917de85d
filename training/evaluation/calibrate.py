"""Calibration of a judge's log-odds on labelled data, written beside the adapter."""

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
_UNREGULARISED = 1e6  # C; two or three parameters need no penalty


def fit_on_held_out(truth: ArrayLike, log_odds: ArrayLike) -> JudgeFit | None:
    """A fit on held-out projects: the judge's calibrated log-odds are added to the rule's own.

    The labels of a dataset are those of the rules, so the weight of the rule's confidence cannot be fitted: it is 1. None where all labels are the same, or where a higher score means a lower probability.
    """
    y, x = np.asarray(truth, bool), np.asarray(log_odds, float).reshape(-1, 1)
    if y.all() or not y.any():
        return None
    fit = LogisticRegression(C=_UNREGULARISED).fit(x, y)
    slope, intercept = float(fit.coef_[0, 0]), float(fit.intercept_[0])
    if slope <= 0:
        return None
    return JudgeFit(round(intercept - float(logit(y.mean())), 6), 1.0, round(slope, 6))


def fit_on_cases(truth: ArrayLike, confidence: ArrayLike, log_odds: ArrayLike) -> JudgeFit | None:
    """Logistic regression over the rule's confidence and the judge's log-odds. None where all labels are the same."""
    y = np.asarray(truth, bool)
    if y.all() or not y.any():
        return None
    fit = LogisticRegression().fit(_features(confidence, log_odds), y)
    (of_confidence, of_log_odds), intercept = fit.coef_[0], fit.intercept_[0]
    return JudgeFit(round(float(intercept), 6), round(float(of_confidence), 6), round(float(of_log_odds), 6))


def across_repositories(
    truth: ArrayLike, confidence: ArrayLike, log_odds: ArrayLike, repositories: Sequence[str]
) -> NDArray[np.float64]:
    """Cross-validated probabilities: each is from a fit without its repository; nan where there was none."""
    y, c, x = np.asarray(truth, bool), np.asarray(confidence, float), np.asarray(log_odds, float)
    probabilities = np.full(y.size, math.nan)
    if len(set(repositories)) < 2:
        return probabilities
    for seen, held in LeaveOneGroupOut().split(x, y, list(repositories)):
        fit = fit_on_cases(y[seen], c[seen], x[seen])
        if fit is not None:
            calibration = Calibration(judge=fit)
            probabilities[held] = [
                calibration.confidence("", a, b) for a, b in zip(c[held], x[held], strict=True)
            ]
    return probabilities


def write(folder: Path, calibration: Calibration, why: str, metrics: dict[str, Any]) -> None:
    """Write the calibration into an adapter folder, and the metrics and the decision into its card."""
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
