"""The learned model, run in plain Python."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.ranker.model import Head, Ranker, ranker, read

HEAD = Head(bias=-1.0, weights={"a": 2.0, "b": -0.5}, slope=0.5, offset=0.1)


def test_a_head_is_a_calibrated_logistic_regression() -> None:
    odds = 0.5 * (-1.0 + 2.0 * 3 - 0.5 * 4) + 0.1
    assert HEAD.probability({"a": 3.0, "b": 4.0, "unknown": 9.0}) == pytest.approx(1 / (1 + math.exp(-odds)))


def test_reasons_are_what_differs_from_the_usual() -> None:
    weighed = Ranker(HEAD, HEAD, {"a": 1.0, "b": 1.0}).weigh({"a": 1.0})
    assert weighed.reasons == (("b", 0.25),)


@given(st.dictionaries(st.sampled_from("abc"), st.floats(-1e12, 1e12)))
def test_probabilities_stay_probabilities(features: dict[str, float]) -> None:
    weighed = Ranker(HEAD, HEAD, {}).weigh(features)
    assert 0 <= weighed.useful <= 1 and 0 <= weighed.right <= 1


def test_the_data_file_of_this_version_can_be_read() -> None:
    assert 0 <= ranker().weigh({"stated log-odds": 1.0}).useful <= 1


def test_a_data_file_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        read(json.dumps({"format": 2}))
