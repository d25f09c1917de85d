"""Verdicts of readers: counted, and held against each other."""

from __future__ import annotations

import json

import pytest

from benchmarks.quality.verdicts import FILES, VERDICTS, cohens_kappa, main


def test_kappa_is_zero_by_chance_and_one_for_the_same() -> None:
    assert cohens_kappa([("R", "R"), ("T", "T"), ("W", "W")]) == 1.0
    assert cohens_kappa([("R", "R"), ("R", "T"), ("T", "R"), ("T", "T")]) == 0.0
    assert cohens_kappa([("T", "T")]) == 1.0
    # 20 of 50 both yes, 15 both no: the example of most textbooks.
    pairs = [("R", "R")] * 20 + [("R", "T")] * 5 + [("T", "R")] * 10 + [("T", "T")] * 15
    assert cohens_kappa(pairs) == pytest.approx(0.4)


def test_the_data_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]
    keys = {(r["repo"], r["sha"], r["path"], r["start"], r["end"], r["rule"], r["reason"]) for r in rows}
    assert len(keys) == len(rows)
    assert all(row["verdict"] in VERDICTS and row["reason"] for row in rows)
    main([])
    printed = capsys.readouterr().out
    assert f"read twice: {sum('second' in row for row in rows)}" in printed
