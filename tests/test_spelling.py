from __future__ import annotations

import pytest

from ptopt.config import ConfigError, load_config
from ptopt.report.text import did_you_mean
from ptopt.rules import known_names, model_rules
from ptopt.spelling import distance, similar


@pytest.mark.parametrize(
    ("one", "other", "edits"),
    [("sync", "sync", 0), ("sync", "synk", 1), ("PTO510", "PTO501", 1), ("item", "", 4), ("abcd", "badc", 2)],
)
def test_distance(one: str, other: str, edits: int) -> None:
    assert distance(one, other) == distance(other, one) == edits


def test_the_nearest_name_comes_first() -> None:
    known = ["item-in-steps", "item-every-step", "item-in-step", "sync"]
    assert similar("itm-in-step", known) == ["item-in-step", "item-in-steps"]
    assert similar("item-", known) == ["item-every-step", "item-in-step", "item-in-steps"]
    assert similar("workflow", known) == []


@pytest.mark.parametrize("typed", ["PTO999", "PTO991", "PTO998", "found-by-mode"])
def test_a_rule_that_only_a_model_can_raise_is_not_what_was_meant(typed: str) -> None:
    hint = did_you_mean(typed, known_names())
    (by_model,) = model_rules()
    assert by_model.id not in hint and by_model.name not in hint
    with pytest.raises(ConfigError) as raised:
        load_config({".ptopt.toml": f'ignore = ["{typed}"]'.encode()}, known_names())
    (problem,) = raised.value.problems
    assert "unknown rule" in problem and by_model.id not in problem and by_model.name not in problem


def test_a_rule_whose_digits_are_swapped() -> None:
    assert did_you_mean("pto510", ["PTO501", "PTO502", "PTO410", "PTO999"]).startswith(
        ", did you mean PTO501"
    )
