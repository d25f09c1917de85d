"""The scorer counts what its definition says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.quality.score import Report, outcome, table, tool_outcome, wilson
from ptopt.findings import Finding, Place, Review, Severity, Span
from ptopt.rules import known_names
from training.evaluation.labels import FITTING, fits

CASE = {
    "name": "p1", "label": "problem", "category": "host-device-sync", "difficulty": "easy",
    "locality": "line", "path": "a.py", "start": 10, "end": 12,
}  # fmt: skip


NEAR = Place(Span(11, 11), "PTO101", "item-every-step", "sync", "")


def _review(
    line: int, name: str = "item-every-step", family: str = "sync", also: tuple[Place, ...] = ()
) -> Review:
    finding = Finding(
        rule="PTO101", name=name, family=family, severity=Severity.HIGH, path="a.py", span=Span(line, line), symbol="",
        message="", when_wrong="", confidence=0.9, fingerprint="", also=also,
    )  # fmt: skip
    return Review(findings=(finding,))


@pytest.mark.parametrize(
    ("line", "found"),
    [(6, 0), (7, 1), (10, 1), (15, 1), (16, 0)],
    ids=["before", "near", "in", "after", "far"],
)
def test_a_comment_counts_within_three_lines(line: int, found: int) -> None:
    assert outcome(CASE, _review(line)).found == found


def test_other_lines_of_the_comment_count() -> None:
    assert outcome(CASE, _review(90, also=(NEAR,))).found == 1
    other = dataclasses.replace(NEAR, name="loader-without-workers", family="data")
    assert outcome(CASE, _review(90, also=(other,))).found == 0
    assert outcome(CASE, _review(10, "loader-without-workers", "data", (NEAR,))).found == 1


def test_a_comment_on_something_else_does_not_count() -> None:
    assert outcome(CASE, _review(10, "loader-without-workers", "data")).found == 0


def test_an_absence_counts_anywhere_in_the_file() -> None:
    case = {**CASE, "locality": "file", "category": "dataloader-no-workers"}
    assert outcome(case, _review(90, "loader-without-workers", "data")).found == 1


def test_clean_commits_want_silence() -> None:
    one = outcome({**CASE, "label": "clean"}, _review(10))
    assert (one.found, one.wanted, one.comments) == (0, 0, 1)


def test_whole_files_count_each_expected_line() -> None:
    expected: list[dict[str, Any]] = [{"line": n, "category": "host-device-sync"} for n in (10, 50)]
    one = outcome({**CASE, "label": "whole", "expected": expected}, _review(10))
    assert (one.found, one.wanted) == (1, 2)


def test_table_is_by_most_wanted() -> None:
    outcomes = [
        outcome(CASE, _review(10)),
        outcome(CASE, _review(90)),
        outcome({**CASE, "difficulty": "hard"}, _review(90)),
    ]
    assert table(outcomes, "difficulty") == [("easy", 1, 2), ("hard", 0, 1)]


def test_categories_name_rules_that_exist() -> None:
    named = {name for names in FITTING.values() for name in names}
    assert named - known_names().keys() == set()
    assert fits("host-device-sync", "item-every-step", "sync") and not fits(
        "unknown", "item-every-step", "sync"
    )


def test_problems_found_by_regressions_are_told_apart() -> None:
    rule = _review(10, "item-per-element")
    regression = _review(11, "item-per-element", "regressions")
    both = Review(findings=rule.findings + regression.findings)
    outcomes = [outcome(CASE, review) for review in (rule, regression, both, _review(90))]
    assert [(o.found, o.found_by_others, o.found_by_regressions) for o in outcomes] == [
        (1, 1, 0), (1, 0, 1), (1, 1, 1), (0, 0, 0),
    ]  # fmt: skip


def test_of_another_tool_any_report_near_the_place_counts() -> None:
    reports = [Report("a.py", 15, 15, "X1"), Report("b.py", 10, 10, "X1")]
    one = tool_outcome(CASE, reports)
    assert (one.found, one.comments, one.said) == (1, 2, ("a.py:15 X1", "b.py:10 X1"))
    assert tool_outcome(CASE, [Report("a.py", 16, 20, "X1"), reports[1]]).found == 0


def test_wilson() -> None:
    assert wilson(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
