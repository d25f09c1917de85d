"""Verdicts of readers: counted, and held against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quality.parts import TUNED, part_of, read_names
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


def test_a_round_is_counted_alone_by_each_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"repo": repo, "rule": "r", "verdict": first, "second": {"verdict": second}}
        for repo, first, second in (("a/a", "R", "T"), ("a/a", "W", "W"), ("b/b", "R", "R"))
    ]
    file, names = tmp_path / "v.jsonl", tmp_path / "names.txt"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names.write_text("a/a\n")
    main([str(file), "--repositories", str(names)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "twice,", "first", "reader", "1", "0", "1", "0"] in lines
    assert ["read", "twice,", "second", "reader", "0", "1", "1", "0"] in lines


def test_no_repository_that_was_learned_from_judges() -> None:
    """Rounds are drawn from the judge part; once one was learned from, its judged repositories are work."""
    tuned = read_names([TUNED])
    judges = read_names([file for file in FILES if file.stem == "judge"])
    assert judges and {part_of(name, tuned) for name in judges} == {"judge"}
    for file in (FILES[0].parents[1] / "rounds").glob("*.txt"):
        assert read_names([file]).isdisjoint(judges), f"{file.name} was learned from"


def test_verdicts_of_the_comments_that_are_made_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comments = [{"repo": "a/a", "sha": "1", "path": "t.py", "start": line} for line in (3, 5, 8)]
    file, now = tmp_path / "v.jsonl", tmp_path / "now.jsonl"
    read = [{**comment, "rule": "r", "verdict": "R"} for comment in comments[:2]]
    file.write_text("".join(json.dumps(row) + "\n" for row in read))
    now.write_text("".join(json.dumps(row) + "\n" for row in comments[1:]))
    main([str(file), "--of", str(now)])
    printed = capsys.readouterr().out
    assert "all" + " " * 41 + "1" in printed and "comments that nobody read: 1 of 2" in printed


def test_states_of_rows_are_counted_apart_from_their_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"repo": "a/a", "rule": "TF32", "verdict": verdict, "state_right": first, "second": {"verdict": "W", "state_right": second}}
        for verdict, first, second in (("R", True, True), ("T", True, False), ("W", False, False))
    ]  # fmt: skip
    file = tmp_path / "v.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    main([str(file)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["state", "right,", "first", "reader", "2/3"] in [line[:5] for line in lines]
    assert ["state", "right,", "second", "reader", "1/3"] in [line[:5] for line in lines]
