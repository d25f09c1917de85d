"""Metrics against numbers worked out by hand, and intervals against what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

from training.evaluation.metrics import (
    Place,
    auc,
    auc_within_rules,
    average_precision,
    bootstrap,
    calibration_error,
    difference,
    matched,
    of_rows,
    precision_at_recall,
    share,
)

pytestmark = pytest.mark.model

TRUTH = [True, False, True, True, False]
SCORES = [0.9, 0.8, 0.7, 0.3, 0.1]


def test_auc_is_the_share_of_pairs_in_order() -> None:
    assert auc(TRUTH, SCORES) == pytest.approx(4 / 6)
    assert auc([True, False], [0.5, 0.5]) == 0.5


def test_auc_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    truth, scores = rng.random(300) < 0.3, rng.integers(0, 12, 300)  # many are equal
    assert auc(truth, scores) == pytest.approx(roc_auc_score(truth, scores))


def test_what_cannot_be_told_is_nan() -> None:
    assert math.isnan(auc([True, True], [0.1, 0.2]))
    assert math.isnan(average_precision([False], [0.1]))
    assert math.isnan(precision_at_recall([False], [0.1], 0.5))
    assert math.isnan(calibration_error([], []))
    assert math.isnan(share(0, 0))


def test_average_precision_of_a_small_ranking() -> None:
    assert average_precision(TRUTH, SCORES) == pytest.approx((1 / 1 + 2 / 3 + 3 / 4) / 3)


@pytest.mark.parametrize(
    ("recall", "precision"), [(0.2, 1.0), (1 / 3, 1.0), (0.5, 3 / 4), (2 / 3, 3 / 4), (1.0, 3 / 4)]
)
def test_precision_at_recall_takes_the_best_threshold_that_reaches_it(
    recall: float, precision: float
) -> None:
    assert precision_at_recall(TRUTH, SCORES, recall) == pytest.approx(precision)


def test_equal_scores_are_shown_together() -> None:
    assert precision_at_recall([True, False, False], [0.5, 0.5, 0.1], 0.1) == 0.5


def test_knowing_only_the_rule_is_worth_nothing_within_rules() -> None:
    rules = ["often"] * 20 + ["rarely"] * 20
    truth = [n % 4 != 0 for n in range(20)] + [n % 4 == 0 for n in range(20)]
    by_rule = [1.0] * 20 + [0.0] * 20
    assert auc(truth, by_rule) > 0.7
    assert auc_within_rules(truth, by_rule, rules) == 0.5


def test_rules_that_are_hardly_asked_about_have_no_auc() -> None:
    assert math.isnan(auc_within_rules([True, False] * 4, [0.5] * 8, ["r"] * 8))


def test_calibration_error_is_the_distance_between_promise_and_truth() -> None:
    truth = np.array([True] * 8 + [False] * 2)
    assert calibration_error(truth, np.full(10, math.log(0.8 / 0.2)), bins=1) == pytest.approx(0.0, abs=1e-9)
    assert calibration_error(truth, np.full(10, math.log(0.3 / 0.7)), bins=1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ([("a", 1, 2)], [("a", 5, 6)], 1),
        ([("a", 1, 2)], [("a", 6, 7)], 0),
        ([("b", 5, 6)], [("a", 5, 6)], 0),
        ([("a", 5, 5), ("a", 6, 6)], [("a", 5, 5)], 1),
        # The first could answer both, the second only the first: both are answered all the same.
        ([("a", 4, 4), ("a", 1, 1)], [("a", 3, 3), ("a", 7, 7)], 2),
        ([], [("a", 1, 1)], 0),
        ([("a", 1, 1)], [], 0),
    ],
)
def test_findings_are_matched_by_rule_and_line(
    said: list[tuple[str, int, int]], wanted: list[tuple[str, int, int]], right: int
) -> None:
    assert matched([Place(*p) for p in said], [Place(*p) for p in wanted]) == right


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.random(200) < 0.5, rng.random(200)
    clusters = [str(n % 12) for n in range(200)]
    assert bootstrap(of_rows(auc, truth, scores), clusters) == bootstrap(
        of_rows(auc, truth, scores), clusters
    )


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Projects differ, and rows of one project are alike: drawing rows would promise far too much."""
    rng = np.random.default_rng(1)
    by_cluster = by_row = 0
    for trial in range(60):
        means = rng.normal(0.0, 1.0, 24)
        values = np.repeat(means, 20) + rng.normal(0, 0.2, 480)
        projects = np.repeat(np.arange(24), 20).tolist()
        one = bootstrap(lambda rows, v=values: float(v[rows].mean()), projects, resamples=100, seed=trial)
        two = bootstrap(
            lambda rows, v=values: float(v[rows].mean()), list(range(480)), resamples=100, seed=trial
        )
        by_cluster += one.low <= 0.0 <= one.high
        by_row += two.low <= 0.0 <= two.high
    assert 0.85 <= by_cluster / 60 <= 1
    assert by_row / 60 < 0.6


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    rng = np.random.default_rng(2)
    truth = rng.random(600) < 0.5
    noise = rng.normal(0, 1, 600)
    better, worse = truth * 1.2 + noise, truth * 0.9 + noise
    projects = [str(n % 20) for n in range(600)]
    paired = bootstrap(difference(auc, truth, better, worse), projects)
    alone = bootstrap(of_rows(auc, truth, better), projects)
    assert 0 < paired.low < paired.value < paired.high
    assert paired.high - paired.low < alone.high - alone.low


def test_one_project_has_no_interval() -> None:
    interval = bootstrap(of_rows(auc, TRUTH, SCORES), ["p"] * 5)
    assert interval.value == pytest.approx(4 / 6) and math.isnan(interval.low) and interval.clusters == 1


def test_no_rows_have_no_interval() -> None:
    assert math.isnan(bootstrap(of_rows(auc, [], []), []).value)


def test_a_statistic_that_is_mostly_undefined_has_no_interval() -> None:
    """Each of two projects has one answer only: an AUC needs both, and half of the draws have not."""
    interval = bootstrap(of_rows(auc, [True, False], [1, 0]), ["a", "b"], resamples=101, seed=3)
    undefined = bootstrap(
        lambda rows: math.nan if set(rows) != {0, 1, 2} else 1.0, ["a", "b", "c"], resamples=100
    )
    assert interval.value == 1.0
    assert undefined.value == 1.0 and math.isnan(undefined.low)
