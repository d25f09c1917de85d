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


RULES = ["PTO101", "PTO102", "PTO103", "PTO111", "PTO120", "PTO401", "item-every-step", "cat-in-loop", "sync"]


@pytest.mark.parametrize("typed", ["item-in-loop", "PTO109", "PTO199", "TOR101", "F401", "cat-on-step"])
def test_what_is_unrelated_is_not_suggested(typed: str) -> None:
    assert similar(typed, RULES) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("PT101", "PTO101"),
        ("PTO1O1", "PTO101"),
        ("pto1021", "PTO102"),
        ("PTO014", ""),
        ("PTO140", ""),
        ("PTO410", "PTO401"),
        ("cat-inloop", "cat-in-loop"),
        ("item-evrey-stpe", "item-every-step"),
        ("items-every-steps", "item-every-step"),
        ("cat-in-loops", "cat-in-loop"),
        ("synk", "sync"),
    ],
)
def test_a_slip_is_understood(typed: str, meant: str) -> None:
    assert (similar(typed, RULES) or [""])[0] == meant
