"""The analysis against a GPU: what `python -m benchmarks.gpu --only waits` measured, and what is said of the same code."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu.wait_cases import CASES, Case, stated
from benchmarks.gpu.waits_table import RESULTS, of_results

MEASURED = {
    (row["code"], row["given"]): row["waits"]
    for row in json.loads((RESULTS / "waits.json").read_text("utf-8"))["rows"]
    if row["waits"] is not None
}


def test_every_case_was_measured() -> None:
    assert {(case.code, case.given) for case in CASES} == MEASURED.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_no_wait_is_claimed_that_is_none(case: Case) -> None:
    assert MEASURED[case.code, case.given] or not stated(case)


def test_the_table_names_what_the_analysis_misses_today() -> None:
    """After a change of the analysis: `python -m benchmarks.gpu.waits_table`, and look at what it changes."""
    assert of_results() == (RESULTS / "waits.md").read_text("utf-8")
