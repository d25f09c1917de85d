"""What the gate lets through: paired intervals decide, and what cannot be decided is refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from ptopt.ranker.model import Head, Ranker
from training.ranker.rows import Row
from training.retrain.gate import Scored, compare, evaluate


def ranker(weight: float, bias: float = 0.0) -> Ranker:
    return Ranker(None, Head(bias, {"x": weight}), {})


def rows(number: int, strength: float, seed: int, repositories: int = 20) -> list[Row]:
    """Comments that are the likelier useful the larger x is."""
    chance = random.Random(seed)
    found = []
    for index in range(number):
        x = chance.uniform(-1, 1)
        useful = chance.random() < 0.5 + 0.5 * strength * x
        found.append(Row(f"r/{index % repositories}", "r", "R" if useful else "T", {"x": x}, ""))
    return found


GOLD, HELD_OUT = rows(500, 0.8, 1), rows(200, 0.8, 2)
PULLS = list(range(200))


def test_better_everywhere() -> None:
    found = evaluate(ranker(2.0), ranker(0.1), GOLD, HELD_OUT, PULLS)
    assert found.refused == ""
    assert found.feedback is not None and found.feedback.gain.low > 0
    assert found.gold["auc"].gain.value == pytest.approx(0)
    figures = json.dumps(found.figures(), allow_nan=False)
    assert json.loads(figures)["feedback"]["candidate"] < json.loads(figures)["feedback"]["champion"]


@pytest.mark.parametrize(
    ("candidate", "champion", "why"),
    [
        (ranker(2.0), ranker(2.0), "held-out feedback it is not better"),
        (ranker(-2.0), ranker(2.0), "on gold the auc"),
        (ranker(9.0), ranker(2.0), "on gold the log loss"),
        (ranker(2.0, bias=1.5), ranker(2.0), "on gold the log loss"),
    ],
)
def test_refused(candidate: Ranker, champion: Ranker, why: str) -> None:
    assert why in evaluate(candidate, champion, GOLD, HELD_OUT, PULLS).refused


def test_better_on_feedback_does_not_make_up_for_worse_on_gold() -> None:
    turned = rows(200, -0.8, 3)
    assert "on gold" in evaluate(ranker(-2.0), ranker(2.0), GOLD, turned, PULLS).refused


def test_too_little_held_out() -> None:
    found = evaluate(ranker(2.0), ranker(0.1), GOLD, HELD_OUT[:19], PULLS[:19])
    assert found.feedback is None and "fewer than 20" in found.refused


def test_few_repositories_are_drawn_by_pull_request() -> None:
    one = [Row("r/0", row.rule, row.verdict, row.features, "") for row in HELD_OUT]
    found = evaluate(ranker(2.0), ranker(0.1), GOLD, one, PULLS)
    assert found.feedback is not None and found.feedback.gain.clusters == 200
    assert evaluate(ranker(2.0), ranker(0.1), GOLD, one, [1] * 200).refused, "one pull request tells nothing"


def test_without_a_gold_set_nothing_is_tried() -> None:
    truth = np.arange(100) % 2 == 0
    better = Scored(truth, np.where(truth, 0.9, 0.1), np.full(100, 0.5), list(range(100)), list(range(100)))
    none = Scored(np.empty(0, bool), np.empty(0), np.empty(0), [], [])
    assert not compare(better, better).refused
    assert "on gold" in compare(none, better).refused
    json.dumps(compare(none, better).figures(), allow_nan=False)
