"""Random commits of tiny clones are reviewed; the comments go to readers, and come back with verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import comments, sheets
from benchmarks.quality.comments import sample
from tests.benchmarks.clones import SLOW, Repository

ROOT = Path(__file__).resolve().parents[2]
EMPTY = "import torch\n\n\ndef train(model, loader, optimizer, device):\n    return 0.0\n"
SILENT = EMPTY.replace("return 0.0", "a = 1\n    b = 2\n    c = 3\n    return a + b + c")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit("start", EMPTY)
    return repository


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def run(tmp_path: Path, *options: object) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows, and the commits that were drawn."""
    out = tmp_path / "rows.jsonl"
    common = ["--clones", tmp_path / "clones", "--cache", tmp_path / "cache", "--out", out, "--all-rules"]
    assert comments.main([*map(str, common), "--min-confidence", "0", *map(str, options)]) == 0
    return read(out), [row["sha"] for row in read(tmp_path / "rows.commits.jsonl")]


def test_a_comment_is_a_row_and_silent_commits_are_written_down(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = repository.commit("slow", SLOW)
    silent = repository.commit("silent", SILENT)
    rows, drawn = run(tmp_path)
    assert set(drawn) == {slow, silent}
    row = next(row for row in rows if row["rule"] == "item-every-step")
    assert (row["repo"], row["sha"], row["path"], row["start"]) == ("acme/net", slow, "train.py", 10)
    assert row["message"] and row["rule_id"].startswith("PTO") and row["family"] == "sync"
    assert 0 < row["confidence"] <= 1 and isinstance(row["features"], dict)
    assert row["has_fix"] == bool(row["fix"]) == ("+++ train.py" in row["fix"])
    out = capsys.readouterr().out
    assert "commits reviewed        2\n" in out and "commits with a comment  1/2 50.0%" in out
    assert "item-every-step" in out and "1 in 1 repositories" in out
    assert all(row["on_added_lines"] for row in rows) and "not on an added line  0 (" in out


def test_other_commits_are_not_drawn(repository: Repository, tmp_path: Path) -> None:
    known = repository.commit("known", SLOW)
    (tmp_path / "known.jsonl").write_text(json.dumps({"sha": known}) + "\n")
    repository.commit("two lines", SLOW + "x = 1\ny = 2\n")
    repository.commit("much", SLOW + "z = 1\n" * 601)
    repository.commit("no torch", "x = 1\n" * 5, "other.py")
    repository.commit("no Python", "x\n" * 5, "notes.txt")
    repository.commit("lost", SLOW + "x = 1\n" * 6, "lost.py")
    repository.git("checkout", "-q", "-b", "side", known)
    side = repository.commit("side", SLOW, "side.py")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-edit", "side")
    repository.lose("HEAD:lost.py")
    _, drawn = run(tmp_path, "--exclude", tmp_path / "known.jsonl")
    assert drawn == [side]


def test_a_rename_adds_no_lines(repository: Repository, tmp_path: Path) -> None:
    repository.commit("slow", SLOW)
    repository.git("mv", "train.py", "fit.py")
    moved = repository.commit("moved", SLOW + "a = 1\nb = 2\nc = 3\n", "fit.py")
    rows, drawn = run(tmp_path)
    assert moved in drawn and moved not in {row["sha"] for row in rows}


def test_the_same_commits_are_drawn_and_can_be_reviewed_again(repository: Repository, tmp_path: Path) -> None:
    for number in range(8):
        repository.commit(f"{number}", f"{SLOW}a = {number}\nb = {number}\nc = {number}\n")
    first = run(tmp_path, "--per-repo", 3, "--seed", 1)
    assert len(first[1]) == 3 and run(tmp_path, "--per-repo", 3, "--seed", 1) == first
    assert any(run(tmp_path, "--per-repo", 3, "--seed", seed)[1] != first[1] for seed in (2, 3, 4))
    assert len(run(tmp_path, "--commits", 2)[1]) == 2
    commits = tmp_path / "again.jsonl"
    commits.write_text("".join(json.dumps({"repo": "acme/net", "sha": sha}) + "\n" for sha in first[1]))
    assert run(tmp_path, "--commits-from", commits)[0] == first[0]
    (tmp_path / "cache").rename(tmp_path / "gone")
    assert run(tmp_path, "--commits-from", commits)[0] == first[0]


def test_only_the_part_and_the_repositories_that_are_wanted(repository: Repository, tmp_path: Path) -> None:
    sha = repository.commit("slow", SLOW)
    assert run(tmp_path, "--part", "judge")[1] == []
    assert run(tmp_path, "--part", "work")[1] == [sha]
    (tmp_path / "names").write_text("acme/other\n")
    assert run(tmp_path, "--repositories", tmp_path / "names")[1] == []


def test_only_commits_since_a_day(repository: Repository, tmp_path: Path) -> None:
    sha = repository.commit("slow", SLOW)
    assert run(tmp_path, "--since", "2001-01-01")[1] == [sha]
    assert run(tmp_path, "--since", "2999-01-01")[1] == []


def test_each_place_can_be_a_row(repository: Repository, tmp_path: Path) -> None:
    repository.commit("slow", SLOW + SLOW[SLOW.index("def train") :].replace("train", "fit"))
    for options, number in (((), 1), (("--each-place",), 2)):
        rows = [row for row in run(tmp_path, *options)[0] if row["rule"] == "item-every-step"]
        assert len(rows) == number and len(rows[0]["also"]) == 2 - number


def test_files_of_the_newest_commit_can_be_reviewed_instead_of_changes(
    repository: Repository, tmp_path: Path
) -> None:
    """Lines that the newest commit did not touch are among them, and the commit's own change stays another thing."""
    repository.commit("slow", SLOW)
    newest = repository.commit("more", SLOW + "\n\ndef last():\n    return None\n")
    rows, drawn = run(tmp_path, "--heads", 5)
    assert drawn == [newest] and {row["start"] for row in rows} >= {10}
    assert run(tmp_path, "--commits-from", tmp_path / "rows.commits.jsonl", "--heads", 5)[0] == rows
    assert run(tmp_path, "--commits-from", tmp_path / "rows.commits.jsonl")[0] == []


def test_commits_that_are_gone_are_counted(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    capsys.readouterr()
    gone = [{"repo": "acme/net", "sha": "1" * 40}, {"repo": "acme/nowhere", "sha": "1" * 40}]
    (tmp_path / "gone.jsonl").write_text("".join(json.dumps(row) + "\n" for row in gone))
    assert run(tmp_path, "--commits-from", tmp_path / "gone.jsonl")[0] == []
    assert "not available           2" in capsys.readouterr().out


def rows_of(number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{n:03}", "repo": f"a/{n % 3}", "sha": f"{n:040}", "path": "a.py", "start": n + 1, "end": n + 2,
            "also": [[50, 50]] if n == 0 else [], "rule": f"r{n % 2}", "message": f"m{n}", "confidence": 0.5,
            "fix": "--- a\n+++ b" if n == 0 else "", "features": {"f": float(n)}, "evidence": [], "family": "sync",
        }
        for n in range(number)
    ]  # fmt: skip


def test_a_sample_holds_so_many_of_a_rule_and_of_a_repository() -> None:
    rows = rows_of(60)
    some = sample(rows, 5, 2, seed=0)
    assert max(Counter(row["rule"] for row in some).values()) == 5
    assert max(Counter((row["rule"], row["repo"]) for row in some).values()) == 2
    assert some == sample(rows, 5, 2, seed=0) and some == sorted(some, key=rows.index)
    assert some != sample(rows, 5, 2, seed=1)
    assert sample(rows, None, None, seed=0) == rows


def sheets_of(tmp_path: Path, rows: list[dict[str, Any]], *options: object) -> list[list[dict[str, Any]]]:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ["--rows", tmp_path / "rows.jsonl", "--out-dir", tmp_path / "sheets"]
    assert sheets.sheet([*map(str, common), *map(str, options)]) == 0
    return [read(file) for file in sorted((tmp_path / "sheets").iterdir())]


def test_readers_see_the_comment_and_not_what_decided_it(tmp_path: Path) -> None:
    hands = sheets_of(tmp_path, rows_of(20), "--readers", 3, "--twice", 4)
    times = Counter(row["id"] for hand in hands for row in hand)
    assert len(hands) == 3 and len(times) == 20 and sorted(times.values()) == [1] * 16 + [2] * 4
    assert all(len({row["id"] for row in hand}) == len(hand) for hand in hands)
    assert any([row["id"] for row in hand] != sorted(row["id"] for row in hand) for hand in hands)
    first = next(row for hand in hands for row in hand if row["id"] == "000")
    assert first == {
        "id": "000", "repo": "a/0", "sha": "0" * 40, "path": "a.py", "lines": "1-2, 50", "message": "m0",
        "fix": "--- a\n+++ b",
    }  # fmt: skip


def test_one_reader_cannot_read_twice(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        sheets_of(tmp_path, rows_of(3), "--readers", 1, "--twice", 1)


def collected(tmp_path: Path, *answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    files = []
    for number, some in enumerate(answers):
        files.append(tmp_path / f"answers-{number}.jsonl")
        files[-1].write_text("".join(json.dumps(answer) + "\n" for answer in some))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of(3)))
    out = tmp_path / "verdicts.jsonl"
    assert (
        sheets.collect(
            ["--rows", str(tmp_path / "rows.jsonl"), "--labels", *map(str, files), "--out", str(out)]
        )
        == 0
    )
    return read(out)


def test_features_are_renewed_and_verdicts_stay(tmp_path: Path) -> None:
    judged = collected(tmp_path, [{"id": f"00{n}", "verdict": "R", "reason": "so"} for n in range(3)])
    now = [{**row, "features": {"g": 2.0}} for row in rows_of(2)]
    (tmp_path / "now.jsonl").write_text("".join(json.dumps(row) + "\n" for row in now))
    verdicts = tmp_path / "verdicts.jsonl"
    assert sheets.refresh(["--rows", str(tmp_path / "now.jsonl"), "--verdicts", str(verdicts)]) == 0
    new = read(verdicts)
    assert [row["features"] for row in new] == [{"g": 2.0}, {"g": 2.0}, {}]
    assert [row["verdict"] for row in new] == [row["verdict"] for row in judged]


def test_verdicts_are_joined_with_what_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"id": "001", "verdict": "R", "reason": "each step", "facts": {"how_often": "step"}}
    two = {"id": "001", "verdict": "T", "reason": "small"}
    rows = collected(tmp_path, [one, {"id": "002", "verdict": "W", "reason": "no loop"}], [two])
    assert rows[0] == {
        "repo": "a/1", "sha": f"{1:040}", "path": "a.py", "start": 2, "end": 3, "rule": "r1", "confidence": 0.5,
        "verdict": "R", "reason": "each step", "facts": {"how_often": "step"}, "features": {"f": 1.0},
        "second": {"verdict": "T", "reason": "small"},
    }  # fmt: skip
    assert len(rows) == 2 and "second" not in rows[1]
    printed = capsys.readouterr()
    assert "read twice: 1, the same verdict: 0" in printed.out
    assert "1 comments have no verdict yet" in printed.err


@pytest.mark.parametrize(
    "answer",
    [
        {"id": "999", "verdict": "R", "reason": "x"},
        {"id": "001", "verdict": "X", "reason": "x"},
        {"id": "001", "verdict": "RT", "reason": "x"},
        {"id": "001", "verdict": "R"},
    ],
    ids=["no such comment", "no such verdict", "two verdicts", "no reason"],
)
def test_a_bad_answer_is_an_error(tmp_path: Path, answer: dict[str, Any]) -> None:
    with pytest.raises(SystemExit):
        collected(tmp_path, [answer])


def test_three_answers_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        collected(tmp_path, *[[{"id": "001", "verdict": "R", "reason": "x"}]] * 3)


@pytest.mark.slow
def test_the_command_in_two_processes(repository: Repository, tmp_path: Path) -> None:
    repository.commit("slow", SLOW)
    command = [
        sys.executable, "-m", "benchmarks.quality", "comments", "--clones", tmp_path / "clones", "--out",
        tmp_path / "rows.jsonl", "--cache", tmp_path / "cache", "--jobs", "2", "--all-rules", "--min-confidence", "0",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=ROOT, check=True, capture_output=True, text=True)
    assert "commits reviewed        1" in done.stdout and done.stderr == ""
