"""The learned model: a data file, and plain Python to run it.

Two logistic regressions over the same features: P(right), that the statement is true of the code, and P(useful), that a
maintainer would act on it. `python -m training ranker` writes the file. The one that ptopt carries was not learned: it
passes through what the rules state, and knows no P(right). docs/ranking.md says why.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

ENVIRONMENT = "PTOPT_RANKER_WEIGHTS"  # a data file to use instead of the one that ptopt carries


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the ranker makes of a hit. `reasons` are the features that moved P(useful) most, strongest first: (name,
    log-odds)."""

    right: float | None  # None: the data file does not tell
    useful: float
    reasons: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Head:
    """One logistic regression: log-odds = bias + sum of weight x feature, then a calibration line (slope, offset)."""

    bias: float
    weights: Mapping[str, float]
    slope: float = 1.0
    offset: float = 0.0

    def log_odds(self, features: Mapping[str, float]) -> float:
        raw = self.bias + sum(self.weights.get(name, 0.0) * value for name, value in features.items())
        return self.slope * raw + self.offset

    def probability(self, features: Mapping[str, float]) -> float:
        odds = max(-30.0, min(30.0, self.log_odds(features)))
        return 1 / (1 + math.exp(-odds))


@dataclass(frozen=True)
class Ranker:
    """Both heads and the means of the features, which reasons are measured against."""

    right: Head | None
    useful: Head
    means: Mapping[str, float]
    least_right: float = 0.0  # below this P(right) nothing is said, however useful it would be
    threshold: float = 0.6  # P(useful) from which on a comment is made, unless the user sets another

    def weigh(self, features: Mapping[str, float], reasons: int = 5) -> Weighed:
        useful = self.useful
        parts = {
            name: useful.slope * useful.weights[name] * (features.get(name, 0.0) - self.means.get(name, 0.0))
            for name in {*features, *self.means}
            if name in useful.weights
        }
        strongest = sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0]))[:reasons]
        return Weighed(
            None if self.right is None else self.right.probability(features),
            useful.probability(features),
            tuple((name, round(weight, 2)) for name, weight in strongest if abs(weight) >= 0.05),
        )


def read(text: str) -> Ranker:
    """A ranker from the JSON text of its data file. Raises ValueError or KeyError when it is none."""
    data = json.loads(text)
    if data["format"] != 1:
        raise ValueError(f"the ranker's data file has format {data['format']}, this version reads format 1")

    def head(name: str) -> Head:
        part = data[name]
        return Head(part["bias"], part["weights"], part["slope"], part["offset"])

    right = None if data["right"] is None else head("right")
    return Ranker(right, head("useful"), data["means"], data["least_right"], data["threshold"])


class WeightsError(ValueError):
    """The file that PTOPT_RANKER_WEIGHTS names cannot be used."""


@cache
def ranker() -> Ranker:
    """The ranker of this process: of the file that PTOPT_RANKER_WEIGHTS names, else the one that ptopt carries.

    Raises WeightsError.
    """
    chosen = os.environ.get(ENVIRONMENT)
    return (
        from_file(Path(chosen))
        if chosen
        else read((files("ptopt.ranker") / "weights.json").read_text("utf-8"))
    )


def threshold(chosen: float | None) -> float:
    """The confidence from which on a proposal becomes a comment; `chosen` is what the settings say, if they do."""
    return ranker().threshold if chosen is None else chosen


def from_file(path: Path) -> Ranker:
    """A ranker from its data file. Raises WeightsError."""
    try:
        return read(path.read_text("utf-8"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WeightsError(f"{ENVIRONMENT}: {path} is no file of ranker weights: {reason}") from None
