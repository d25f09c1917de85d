"""What a calibration makes of the model's word, and what is refused as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.model.calibration import Calibration, CalibrationError, JudgeFit

FIT = JudgeFit(-0.5, 1.2, 0.4, ("item-every-step",), 0.3)


def test_without_a_fit_the_model_has_no_say() -> None:
    off = Calibration.off()
    assert off.silent and off.floor is None and not off.judges("item-every-step")
    assert off.confidence("item-every-step", 0.7, 9.0) == 0.7


def test_a_rule_it_was_not_fitted_on_keeps_its_confidence() -> None:
    calibration = Calibration(FIT)
    assert calibration.confidence("cat-in-loop", 0.7, -9.0) == 0.7
    assert calibration.confidence("item-every-step", 0.7, -9.0) < 0.1
    assert Calibration(JudgeFit(0, 1, 1)).judges("cat-in-loop")


def test_the_fit_is_the_logistic_regression_that_it_says() -> None:
    # sigmoid(-0.5 + 1.2 * ln(0.8 / 0.2) + 0.4 * 2) = sigmoid(1.9636)
    assert Calibration(FIT).confidence("item-every-step", 0.8, 2.0) == pytest.approx(0.8769, abs=1e-4)


def test_zero_log_odds_of_an_identity_fit_change_nothing() -> None:
    same = Calibration(JudgeFit(0.0, 1.0, 1.0))
    assert same.confidence("any", 0.73, 0.0) == pytest.approx(0.73)


@given(st.floats(0, 1), st.floats(allow_nan=False, allow_infinity=False))
def test_a_confidence_is_a_probability_whatever_the_model_says(confidence: float, log_odds: float) -> None:
    calibration = Calibration(JudgeFit(-0.5, 1.2, 0.4))
    assert 0 <= calibration.confidence("any", confidence, log_odds) <= 1
    assert 0 <= calibration.own_confidence("any", log_odds) <= 1


def test_findings_of_its_own_need_no_fit() -> None:
    assert Calibration(advise_threshold=0.9).own_confidence("any", 0.0) == 0.5
    assert Calibration(JudgeFit(1.0, 1.0, 1.0)).own_confidence("any", -1.0) == 0.5


@pytest.mark.parametrize(
    "calibration", [Calibration.off(), Calibration(FIT, 0.9, True, measured_on="500 functions")]
)
def test_json_and_back(calibration: Calibration) -> None:
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the calibration must be an object"),
        ('{"judges": 1}', "no field 'judges'"),
        ('{"judge": 1}', "judge must be an object"),
        ('{"judge": {"of_confidence": 1, "of_log_odds": 1}}', "intercept must be a number"),
        (
            '{"judge": {"intercept": true, "of_confidence": 1, "of_log_odds": 1}}',
            "intercept must be a number",
        ),
        ('{"judge": {"intercept": NaN, "of_confidence": 1, "of_log_odds": 1}}', "intercept must be a number"),
        (
            json.dumps({"judge": {"intercept": 10**400, "of_confidence": 1, "of_log_odds": 1}}),
            "intercept must be a number",
        ),
        (
            '{"judge": {"intercept": 0, "of_confidence": 1, "of_log_odds": 1, "floor": 2}}',
            "floor must be from 0 to 1",
        ),
        (
            '{"judge": {"intercept": 0, "of_confidence": 1, "of_log_odds": 1, "rules": "all"}}',
            "judge.rules must be a list",
        ),
        ('{"advise_threshold": "0.9"}', "advise_threshold must be a number"),
        ('{"explain": "no"}', "explain must be true or false"),
    ],
)
def test_what_is_no_calibration_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(CalibrationError, match=said.replace("[", r"\[")):
        Calibration.from_json(text)
