"""The learned model, run in plain Python."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.findings import TEXTBOOK, TEXTBOOK_WORTH, as_shown
from ptopt.ranker.model import ENVIRONMENT, Head, Ranker, WeightsError, from_file, ranker, read

HEAD = Head(bias=-1.0, weights={"a": 2.0, "b": -0.5}, slope=0.5, offset=0.1)


def test_a_head_is_a_calibrated_logistic_regression() -> None:
    odds = 0.5 * (-1.0 + 2.0 * 3 - 0.5 * 4) + 0.1
    assert HEAD.probability({"a": 3.0, "b": 4.0, "unknown": 9.0}) == pytest.approx(1 / (1 + math.exp(-odds)))


def test_reasons_are_what_differs_from_the_usual() -> None:
    weighed = Ranker(HEAD, HEAD, {"a": 1.0, "b": 1.0}).weigh({"a": 1.0})
    assert weighed.reasons == (("not b", 0.25),)


@given(st.dictionaries(st.sampled_from("abc"), st.floats(-1e12, 1e12)))
def test_probabilities_stay_probabilities(features: dict[str, float]) -> None:
    weighed = Ranker(HEAD, HEAD, {}).weigh(features)
    assert 0 <= weighed.useful <= 1 and 0 <= weighed.right <= 1


@pytest.mark.usefixtures("learned_ranker")
def test_the_data_file_of_this_version_can_be_read() -> None:
    assert 0 <= ranker().weigh({"stated log-odds": 1.0}).useful <= 1


def test_the_environment_names_another_data_file(
    learned_ranker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "format": 3,
        "right": None,
        "least_stated": 0.0,
        "least_right": 0.0,
        "threshold": 0.5,
        "means": {},
        "features": [],
    }
    head = {"bias": 3.0, "slope": 1.0, "offset": 0.0, "weights": {}, "trees": []}
    weights = tmp_path / "weights.json"
    weights.write_text(json.dumps(given | {"useful": head}))
    monkeypatch.setenv(ENVIRONMENT, str(weights))
    assert ranker().weigh({}).useful == pytest.approx(1 / (1 + math.exp(-3)))


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"format": 3, "useful": 3}'])
def test_a_data_file_that_is_none_is_named(tmp_path: Path, text: str | None) -> None:
    weights = tmp_path / "weights.json"
    if text is not None:
        weights.write_text(text)
    with pytest.raises(WeightsError, match=r"PTOPT_RANKER_WEIGHTS: .*weights\.json"):
        from_file(weights)


def test_a_data_file_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 1"):
        read(json.dumps({"format": 1}))


def test_a_comment_has_to_be_useful_and_right() -> None:
    useful, right = Head(0.0, {"a": 1.0}), Head(0.0, {"b": 1.0})
    known = Ranker(right, useful, {}, least_right=0.8)
    assert known.admits({"a": 2.0, "b": 2.0}, 0.6)
    assert not known.admits({"a": 2.0, "b": 1.0}, 0.6), "P(right) is 0.73"
    assert not known.admits({"a": 0.1, "b": 2.0}, 0.6), "P(useful) is 0.52"
    assert known.admits({"a": -9.0, "b": -9.0}, 0.0), "whoever wants to see everything does"


def test_the_textbook_case_of_a_rule_is_worth_a_comment() -> None:
    unlikely, sure = Head(bias=-4.0, weights={}), Head(bias=4.0, weights={})
    textbook = {"stated confidence": TEXTBOOK}
    weights = Ranker(sure, unlikely, {}, least_right=0.85, threshold=0.4)
    assert weights.weigh(textbook).useful == TEXTBOOK_WORTH and weights.admits(textbook, 0.4)
    assert not weights.admits({"stated confidence": 0.85}, 0.4)
    assert not weights.admits(textbook, TEXTBOOK_WORTH + 0.1), "a threshold of the user's own counts"
    proved = Ranker(unlikely, unlikely, {}, least_right=0.85, threshold=0.4)
    assert proved.weigh(textbook).right == 0.85 and proved.admits(textbook, 0.4)


def test_what_is_shown_as_the_threshold_has_reached_it() -> None:
    even = Ranker(None, Head(0.2, {}), {})  # P(useful) is 0.5498
    shown = as_shown(even.worth({}))
    assert shown == 0.54 and not even.admits({"stated confidence": 0.8}, 0.55)
    assert even.admits({"stated confidence": 0.8}, shown)
    assert even.missed({"stated confidence": 0.8}, even.conditions(shown)) == ()


@pytest.mark.parametrize("hundredths", range(101))
def test_a_probability_of_two_digits_is_shown_as_it_is(hundredths: int) -> None:
    assert as_shown(hundredths / 100) == float(f"0.{hundredths:02}" if hundredths < 100 else "1")


def test_a_reason_says_that_the_hit_lacks_it() -> None:
    """Else a reader takes "runs in training" for what the ranker found."""
    head = Head(0.0, {"often:step": 1.0, "often:layer": 1.0, "lines": 1.0})
    weighed = Ranker(head, head, {"often:step": 0.5, "often:layer": 0.5, "lines": 2.0}).weigh(
        {"often:layer": 1.0}
    )
    assert dict(weighed.reasons) == {"not often:step": -0.5, "often:layer": 0.5, "not lines": -2.0}
