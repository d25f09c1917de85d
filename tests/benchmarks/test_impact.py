"""The benchmarks of the rules run, and both sides compute the same."""

from __future__ import annotations

import math
import random

import pytest

from ptopt.rules import all_rules
from ptopt.rules.base import Rule

torch = pytest.importorskip("torch")
from benchmarks.impact.measure import check_equal, pairs  # noqa: E402 (needs torch)
from ptopt.impact.ratios import interval  # noqa: E402

pytestmark = pytest.mark.model

MEASURED = [pytest.param(rule, id=rule.name) for rule in all_rules() if rule.BENCHMARK is not None]


@pytest.mark.slow
@pytest.mark.parametrize("rule", MEASURED)
def test_before_and_after_compute_the_same(rule: type[Rule]) -> None:
    assert rule.BENCHMARK is not None
    torch.set_num_threads(1)
    check_equal(rule.BENCHMARK)


def test_interval_of_a_ratio() -> None:
    groups = [[math.log(2) + d for d in (-0.02, -0.01, 0.0, 0.01, 0.02)] for _ in range(3)]
    median, low, high = interval(groups)
    assert low <= median <= high
    assert median == pytest.approx(2)
    assert low > 1.9 and high < 2.1


def test_pairs_give_one_ratio_each() -> None:
    wall, cpu = pairs(lambda: sum(range(4000)), lambda: sum(range(1000)), 20, random.Random(0))
    assert 5 <= len(wall) <= 20 and len(cpu) <= len(wall)
    assert sorted(wall)[len(wall) // 2] > 0
