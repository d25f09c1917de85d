"""Fits the ranker: two logistic regressions with a ridge penalty, calibrated on repositories that they have not seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ptopt.ranker.model import Head, Ranker
from training.ranker.rows import Row, by_repository

STRENGTHS = (0.001, 0.002, 0.004, 0.01, 0.03, 0.1, 0.3)  # inverse of the penalty, tried in turn
FOLDS = 8
LEAST_RIGHT = 0.8
PRECISION = 0.6  # share of useful comments that the threshold is chosen for
_FEWEST = 20  # comments above a threshold that say how good it is
_SEEN = 6  # a feature that fewer rows have says nothing
_LEAST_SLOPE = 0.2  # a calibration never turns the order round
Matrix = NDArray[np.float64]
Truth = Callable[[Row], bool]


class Columns:
    """Features as columns of a matrix, each divided by its standard deviation."""

    def __init__(self, rows: Sequence[Row]) -> None:
        seen = Counter(name for row in rows for name in row.features)
        self.names = sorted(name for name, count in seen.items() if count >= _SEEN)
        raw = self._raw(rows)
        self._scale = (
            np.where(raw.std(axis=0) > 0, raw.std(axis=0), 1.0) if len(rows) else np.ones(len(self.names))
        )
        self.means = dict(zip(self.names, raw.mean(axis=0).tolist(), strict=True))

    def matrix(self, rows: Sequence[Row]) -> Matrix:
        """(rows, features)"""
        scaled: Matrix = self._raw(rows) / self._scale
        return scaled

    def head(self, model: LogisticRegression) -> Head:
        """The fitted model in terms of features as they are."""
        weights = model.coef_[0] / self._scale
        named = {
            name: round(float(w), 4) for name, w in zip(self.names, weights, strict=True) if abs(w) > 1e-4
        }
        return Head(round(float(model.intercept_[0]), 4), named)

    def _raw(self, rows: Sequence[Row]) -> Matrix:
        return np.array(
            [[row.features.get(name, 0.0) for name in self.names] for row in rows], dtype=np.float64
        ).reshape(len(rows), len(self.names))


def out_of_fold(rows: Sequence[Row], truth: Truth, strength: float) -> Matrix:
    """P(truth) of each row (rows,), from models that have not seen its repository."""
    folds = np.array(by_repository(rows, FOLDS))
    answers = np.array([truth(row) for row in rows])
    found = np.zeros(len(rows))
    for fold in range(FOLDS):
        training = [row for row, of in zip(rows, folds, strict=True) if of != fold]
        asked = [row for row, of in zip(rows, folds, strict=True) if of == fold]
        known = answers[folds != fold]
        if not asked:
            continue
        if known.all() or not known.any():
            found[folds == fold] = float(known.mean())
            continue
        columns = Columns(training)
        model = _logistic(strength).fit(columns.matrix(training), known)
        found[folds == fold] = model.predict_proba(columns.matrix(asked))[:, 1]
    return found


def best_strength(rows: Sequence[Row], truth: Truth) -> float:
    """The penalty with the least log loss on repositories left out."""
    answers = [truth(row) for row in rows]

    def loss(strength: float) -> float:
        return float(
            log_loss(
                answers, np.clip(out_of_fold(rows, truth, strength), 1e-3, 1 - 1e-3), labels=[False, True]
            )
        )

    return min(STRENGTHS, key=loss)


def boosted(rows: Sequence[Row], asked: Sequence[Row], truth: Truth) -> Matrix:
    """P(truth) of the rows asked about (rows,), from gradient-boosted trees: for comparison."""
    columns = Columns(rows)
    model = GradientBoostingClassifier(
        n_estimators=80, max_depth=3, subsample=0.7, learning_rate=0.06, random_state=0
    )
    model.fit(columns.matrix(rows), [truth(row) for row in rows])
    found: Matrix = model.predict_proba(columns.matrix(asked))[:, 1]
    return found


def train(rows: Sequence[Row], calibration: Sequence[Row]) -> Ranker:
    """Fit on `rows`, calibrate on `calibration`, whose repositories are others."""
    columns = Columns(rows)

    def head(truth: Truth) -> tuple[Head, Matrix]:
        strength = best_strength(rows, truth)
        fitted = columns.head(_logistic(strength).fit(columns.matrix(rows), [truth(row) for row in rows]))
        # The calibration line is fitted to all predictions on unseen repositories: few rows move it little.
        raw = [fitted.log_odds(row.features) for row in calibration]
        held_out = np.clip(out_of_fold(rows, truth, strength), 1e-6, 1 - 1e-6)
        odds = np.concatenate([np.log(held_out / (1 - held_out)), raw]).reshape(-1, 1)
        answers = [truth(row) for row in (*rows, *calibration)]
        line = LogisticRegression(C=10.0).fit(odds, answers)
        slope = round(max(float(line.coef_[0][0]), _LEAST_SLOPE), 4)
        offset = round(float(line.intercept_[0]), 4)
        unseen: Matrix = 1 / (1 + np.exp(-(slope * odds[:, 0] + offset)))
        return Head(fitted.bias, fitted.weights, slope, offset), unseen

    (right, _), (useful, unseen) = head(lambda row: row.right), head(lambda row: row.useful)
    least = threshold([row.useful for row in (*rows, *calibration)], unseen)
    means = {name: round(mean, 4) for name, mean in columns.means.items() if name in useful.weights}
    return Ranker(right, useful, means, LEAST_RIGHT, least)


def threshold(useful: Sequence[bool], probability: Matrix) -> float:
    """The lowest probability (rows,) from which on PRECISION of the rows are useful; 0.6 where too few rows tell."""
    order = np.argsort(-probability, kind="stable")
    precision = np.cumsum(np.asarray(useful)[order]) / np.arange(1, len(order) + 1)
    enough = [n for n in range(_FEWEST - 1, len(order)) if precision[n] >= PRECISION]
    return round(float(probability[order[enough[-1]]]), 2) if enough else 0.6


def as_text(ranker: Ranker, origin: str) -> str:
    """The data file."""

    def head(part: Head | None) -> dict[str, object] | None:
        if part is None:
            return None
        weights = dict(sorted(part.weights.items()))
        return {"bias": part.bias, "slope": part.slope, "offset": part.offset, "weights": weights}

    data = {
        "format": 1,
        "origin": origin,
        "right": head(ranker.right),
        "useful": head(ranker.useful),
        "least_right": ranker.least_right,
        "threshold": ranker.threshold,
        "means": dict(sorted(ranker.means.items())),
    }
    return json.dumps(data, indent=1) + "\n"


def _logistic(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=2000)
