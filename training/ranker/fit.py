"""Fits the ranker: the mean of a logistic regression with a ridge penalty and of boosted trees, for each of P(right) and
P(useful), calibrated on repositories that they have not seen."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from ptopt.ranker.model import Head, Node, Ranker, Tree
from training.ranker.rows import Row, by_repository

STRENGTHS = (0.001, 0.002, 0.004, 0.01, 0.03, 0.1, 0.3)  # inverse of the penalty, tried in turn
FOLDS = 8
# What a comment needs, whatever the rows say: mistakes that readers found in them were repaired, and are no rows any more, so
# they flatter. `python -m benchmarks.quality draws` shows what these gates are worth on repositories that nothing had met.
LEAST_STATED, LEAST_RIGHT, LEAST_USEFUL = 0.65, 0.85, 0.55
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
        raw = self.raw(rows)
        self._scale = (
            np.where(raw.std(axis=0) > 0, raw.std(axis=0), 1.0) if len(rows) else np.ones(len(self.names))
        )
        self.means = dict(zip(self.names, raw.mean(axis=0).tolist(), strict=True))

    def matrix(self, rows: Sequence[Row]) -> Matrix:
        """(rows, features)"""
        scaled: Matrix = self.raw(rows) / self._scale
        return scaled

    def weights(self, model: LogisticRegression) -> dict[str, float]:
        """The fitted weights in terms of features as they are."""
        raw = model.coef_[0] / self._scale
        return {name: float(w) for name, w in zip(self.names, raw, strict=True) if abs(w) > 1e-4}

    def raw(self, rows: Sequence[Row]) -> Matrix:
        """(rows, features), not scaled."""
        return np.array(
            [[row.features.get(name, 0.0) for name in self.names] for row in rows], dtype=np.float64
        ).reshape(len(rows), len(self.names))


def fit(rows: Sequence[Row], truth: Truth, strength: float) -> Head:
    """The mean of both models, not calibrated."""
    answers = np.array([truth(row) for row in rows])
    if answers.all() or not answers.any():
        return Head(6.0 if answers.all() else -6.0, {})
    columns, trust = Columns(rows), _weights(rows)
    linear = _logistic(strength).fit(columns.matrix(rows), answers, trust)
    boosted = _boosted().fit(columns.raw(rows), answers, trust)
    prior = boosted.init_.class_prior_[1]
    bias = (float(linear.intercept_[0]) + math.log(prior / (1 - prior))) / 2
    weights = {name: round(weight / 2, 4) for name, weight in columns.weights(linear).items()}
    trees = tuple(_tree(e.tree_, columns.names, boosted.learning_rate / 2) for e in boosted.estimators_[:, 0])
    return Head(round(bias, 4), weights, trees=trees)


def _tree(tree: Any, names: Sequence[str], rate: float) -> Tree:
    """scikit-learn's tree as ours: `rate` times its leaves, and at inner nodes the mean of the leaves below."""
    samples, left, right = tree.weighted_n_node_samples, tree.children_left, tree.children_right
    values = tree.value[:, 0, 0] * rate
    for at in reversed(range(tree.node_count)):  # children stand behind their parents
        if left[at] >= 0:
            below = (left[at], right[at])
            values[at] = sum(samples[n] * values[n] for n in below) / sum(samples[n] for n in below)
    return tuple(
        Node(
            names[tree.feature[at]] if left[at] >= 0 else "",
            round(float(tree.threshold[at]), 5),
            int(left[at]),
            int(right[at]),
            round(float(values[at]), 5),
        )
        for at in range(tree.node_count)
    )


def out_of_fold(rows: Sequence[Row], model: Callable[[Sequence[Row]], Head]) -> Matrix:
    """Log-odds of each row (rows,), from models that have not seen its repository."""
    folds = np.array(by_repository(rows, FOLDS))
    found = np.zeros(len(rows))
    for fold in sorted(set(folds.tolist())):
        head = model([row for row, of in zip(rows, folds, strict=True) if of != fold])
        found[folds == fold] = [
            head.log_odds(row.features) for row, of in zip(rows, folds, strict=True) if of == fold
        ]
    return found


def best_strength(rows: Sequence[Row], truth: Truth) -> float:
    """The penalty of the logistic regression with the least log loss on repositories left out."""
    answers, trust = np.array([truth(row) for row in rows]), _weights(rows)
    if not all(len(set(side)) == 2 for side in _sides(rows, answers.tolist())):
        return 0.01
    folds = np.array(by_repository(rows, FOLDS))
    odds = np.zeros((len(STRENGTHS), len(rows)))
    for fold in sorted(set(folds.tolist())):
        inside, outside = folds == fold, folds != fold
        training = [row for row, of in zip(rows, folds, strict=True) if of != fold]
        columns, weights = Columns(training), _weights(training)
        known, unseen = (
            columns.matrix(training),
            columns.matrix([r for r, i in zip(rows, inside, strict=True) if i]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what does not converge has the loss it has
            for number, strength in enumerate(STRENGTHS):
                model = _logistic(strength).fit(known, answers[outside], weights)
                odds[number, inside] = model.decision_function(unseen)

    def loss(number: int) -> float:
        chance = np.clip(1 / (1 + np.exp(-odds[number])), 1e-3, 1 - 1e-3)
        return float(log_loss(answers, chance, sample_weight=trust, labels=[False, True]))

    return STRENGTHS[min(range(len(STRENGTHS)), key=loss)]


def _sides(rows: Sequence[Row], answers: Sequence[bool]) -> list[list[bool]]:
    """The answers of all folds but one, for each."""
    folds = by_repository(rows, FOLDS)
    return [[a for a, of in zip(answers, folds, strict=True) if of != fold] for fold in set(folds)]


def train(rows: Sequence[Row], calibration: Sequence[Row]) -> Ranker:
    """Fit on `rows`, calibrate on `calibration`, whose repositories are others."""
    # On matrices this small, threads of BLAS wait for each other ten times as long as they work, and scikit-learn checks the
    # parameters of each tree, which are ours, as long as it grows it.
    with threadpool_limits(limits=1), config_context(skip_parameter_validation=True):
        return _train(rows, calibration)


def _train(rows: Sequence[Row], calibration: Sequence[Row]) -> Ranker:

    def head(truth: Truth, tells: Truth) -> tuple[Head, Matrix]:
        """From the rows that tell; the probabilities are of all rows, each from a model that has not seen it."""
        own = [row for row in rows if tells(row)]
        strength = best_strength(own, truth)
        fitted = fit(own, truth, strength)
        # The calibration line is fitted to all predictions on unseen repositories: few rows move it little.
        held_out = iter(out_of_fold(own, lambda training: fit(training, truth, strength)))
        odds = np.array(
            [next(held_out) if tells(row) else fitted.log_odds(row.features) for row in rows]
            + [fitted.log_odds(row.features) for row in calibration]
        )
        mask = np.array([tells(row) for row in rows] + [True] * len(calibration))
        answers = [truth(row) for row in (*own, *calibration)]
        if len(set(answers)) < 2:
            return fitted, odds
        line = LogisticRegression(C=10.0).fit(
            odds[mask].reshape(-1, 1), answers, _weights([*own, *calibration])
        )
        slope = round(max(float(line.coef_[0][0]), _LEAST_SLOPE), 4)
        offset = round(float(line.intercept_[0]), 4)
        unseen: Matrix = 1 / (1 + np.exp(-(slope * odds + offset)))
        return replace(fitted, slope=slope, offset=offset), unseen

    right, trusted = head(lambda row: row.right, lambda row: row.judged)
    useful, unseen = head(lambda row: row.useful, lambda row: True)
    known = (*rows, *calibration)
    tells = np.array(
        [row.drawn and row.features.get("stated confidence", 0.0) >= LEAST_STATED for row in known]
    ) & (trusted >= LEAST_RIGHT)
    least = max(LEAST_USEFUL, threshold(np.array([row.useful for row in known])[tells], unseen[tells]))
    means = {n: round(mean, 4) for n, mean in Columns(rows).means.items() if n in useful.weights}
    return Ranker(right, useful, means, LEAST_STATED, LEAST_RIGHT, least)


def threshold(useful: NDArray[np.bool_], probability: Matrix) -> float:
    """The lowest probability (rows,) from which on PRECISION of the rows are useful; 0.6 where too few rows tell."""
    order = np.argsort(-probability, kind="stable")
    precision = np.cumsum(useful[order]) / np.arange(1, len(order) + 1)
    enough = [n for n in range(_FEWEST - 1, len(order)) if precision[n] >= PRECISION]
    return round(float(probability[order[enough[-1]]]), 2) if enough else 0.6


def as_text(ranker: Ranker, origin: str) -> str:
    """The data file."""
    heads = [head for head in (ranker.right, ranker.useful) if head is not None]
    names = sorted({node.feature for head in heads for tree in head.trees for node in tree if node.feature})
    places = {name: number for number, name in enumerate(names)} | {"": -1}

    def head(part: Head | None) -> dict[str, object] | None:
        if part is None:
            return None
        weights = dict(sorted(part.weights.items()))
        trees = [[[places[node.feature], *node[1:]] for node in tree] for tree in part.trees]
        return {
            "bias": part.bias, "slope": part.slope, "offset": part.offset, "weights": weights, "trees": trees,
        }  # fmt: skip

    data = {
        "format": 3,
        "origin": origin,
        "least_stated": ranker.least_stated,
        "least_right": ranker.least_right,
        "threshold": ranker.threshold,
        "right": head(ranker.right),
        "useful": head(ranker.useful),
        "means": dict(sorted(ranker.means.items())),
        "features": names,
    }
    return json.dumps(data, separators=(",", ":")) + "\n"


def _weights(rows: Sequence[Row]) -> Matrix | None:
    """(rows,); None where all weigh the same."""
    found = np.array([row.weight for row in rows], dtype=np.float64)
    return None if (found == 1.0).all() else found


def _logistic(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=2000)


def _boosted() -> GradientBoostingClassifier:
    """Many shallow trees that each see half of the rows and a few of the features: the rows are few."""
    return GradientBoostingClassifier(
        n_estimators=150, max_depth=3, subsample=0.5, learning_rate=0.04, max_features=0.15, min_samples_leaf=8,
        random_state=0,
    )  # fmt: skip
