"""Calibration of a model's log-odds, fitted on held-out code and kept beside the adapter.

A logistic regression, fitted on labelled data, combines the confidence of a rule with the log-odds of the model. A model that
was not measured to help has no fit, and changes no review.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_EDGE = 1e-4  # confidences are clipped to this, so that the model's log-odds always count


class CalibrationError(ValueError):
    """The text is not a valid calibration. The message names the field."""


@dataclass(frozen=True, slots=True)
class JudgeFit:
    """P(right) = sigmoid(intercept + of_confidence * logit(rule's confidence) + of_log_odds * log-odds)."""

    intercept: float
    of_confidence: float
    of_log_odds: float
    rules: tuple[str, ...] | None = None  # names of the rules it was fitted on and holds for; None: all
    floor: float = 0.0  # the least confidence of the rule at which the model is used


@dataclass(frozen=True, slots=True)
class Calibration:
    """Which outputs of the model are used. None by default."""

    judge: JudgeFit | None = None
    advise_threshold: float | None = None  # probability from which its own findings are shown
    explain: bool = False  # whether its sentences are shown
    # Probability from which what it finds in a change as a whole is shown; None: it is not asked.
    change_threshold: float | None = None
    change_confidence: float = 0.0  # the share of that which was right where it was measured
    measured_on: str = ""  # the data, in words

    @classmethod
    def off(cls) -> Calibration:
        """No output of the model is used."""
        return cls()

    @property
    def silent(self) -> bool:
        """Is no output of the model used?"""
        return (
            self.judge is None
            and self.advise_threshold is None
            and self.change_threshold is None
            and not self.explain
        )

    @property
    def floor(self) -> float | None:
        """The confidence from which hits are judged; None when none is."""
        return None if self.judge is None else self.judge.floor

    def judges(self, rule: str) -> bool:
        """Does the fit hold for this rule, given by name?"""
        return self.judge is not None and (self.judge.rules is None or rule in self.judge.rules)

    def confidence(self, rule: str, confidence: float, log_odds: float) -> float:
        """How likely the finding is right, given the rule's confidence (0..1) and the model's log-odds."""
        fit = self.judge
        if fit is None or not self.judges(rule):
            return confidence
        clipped = min(max(confidence, _EDGE), 1 - _EDGE)
        prior = math.log(clipped / (1 - clipped))
        return _sigmoid(fit.intercept + fit.of_confidence * prior + fit.of_log_odds * log_odds)

    def own_confidence(self, rule: str, log_odds: float) -> float:
        """How likely a finding of the model's own is right, given its log-odds as a judge of it."""
        return self.confidence(rule, 0.5, log_odds) if self.judges(rule) else _sigmoid(log_odds)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Calibration:
        """Raises `CalibrationError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CalibrationError(f"the calibration is not JSON: {error}") from None
        names = (
            "judge", "advise_threshold", "change_threshold", "change_confidence", "explain", "measured_on",
        )  # fmt: skip
        fields = _table(data, "the calibration", names)
        judge, explain = fields.get("judge"), fields.get("explain", False)
        if not isinstance(explain, bool):
            raise CalibrationError("explain must be true or false")
        return cls(
            judge=None if judge is None else _fit(judge),
            advise_threshold=_probability(fields, "advise_threshold"),
            explain=explain,
            change_threshold=_probability(fields, "change_threshold"),
            change_confidence=_probability(fields, "change_confidence") or 0.0,
            measured_on=str(fields.get("measured_on", "")),
        )


def _fit(data: object) -> JudgeFit:
    names = ("intercept", "of_confidence", "of_log_odds", "rules", "floor")
    fields = _table(data, "judge", names)
    rules = fields.get("rules")
    if rules is not None and not (isinstance(rules, list) and all(isinstance(r, str) for r in rules)):
        raise CalibrationError("judge.rules must be a list of rule names, or null")
    return JudgeFit(
        intercept=_number(fields, "intercept"),
        of_confidence=_number(fields, "of_confidence"),
        of_log_odds=_number(fields, "of_log_odds"),
        rules=None if rules is None else tuple(rules),
        floor=_number({"floor": 0.0, **fields}, "floor", low=0, high=1),
    )


def _table(data: object, what: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise CalibrationError(f"{what} must be an object")
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise CalibrationError(f"{what} has no field {unknown[0]!r}; there are {', '.join(known)}")
    return data


def _probability(fields: Mapping[str, Any], name: str) -> float | None:
    return None if fields.get(name) is None else _number(fields, name, low=0, high=1)


def _number(fields: Mapping[str, Any], name: str, low: float = -math.inf, high: float = math.inf) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e9 < value < 1e9:
        raise CalibrationError(f"{name} must be a number")
    if not low <= value <= high:
        raise CalibrationError(f"{name} must be from {low:g} to {high:g}")
    return float(value)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
