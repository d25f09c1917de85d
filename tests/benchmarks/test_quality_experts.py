"""What readers would have posted, compared with what ptopt says of the same commits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality import experts
from benchmarks.quality.changes import config_of
from benchmarks.quality.comments import Work
from benchmarks.quality.common import read_rows
from benchmarks.quality.experts import Reading, compare, is_met
from tests.benchmarks.clones import SLOW, Repository

EMPTY = "import torch\n\n\ndef train(model, loader, optimizer, device):\n    return 0.0\n"


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit("start", EMPTY)
    sha = repository.commit("slow", SLOW)
    config = config_of(min_confidence=None, all_rules=False, budget=None, all_paths=False)
    remarks = [
        {"repo": "acme/net", "sha": sha, "path": "train.py", "line": line, "grade": 3} for line in (9, 200)
    ]
    return Reading(
        Work("acme/net", repository.path, tmp_path / "cache", [sha, "0" * 40], config, True), {sha: remarks}
    )


def test_a_remark_is_met_near_a_comment_on_the_same_file(reading: Reading) -> None:
    ((commit,), lost, unanswered) = compare(reading)
    assert (lost, unanswered) == (1, 0)
    near, far = commit.remarks
    assert is_met(near, commit.proposed) and not is_met(far, commit.proposed)
    assert not is_met(near | {"path": "other.py"}, commit.proposed)


def test_totals(reading: Reading, capsys: pytest.CaptureFixture[str]) -> None:
    experts._print(compare(reading)[0])
    out = capsys.readouterr().out
    assert "a reader would surely post on     1/1" in out
    assert "would surely post (2)" in out and "1/2 50.0%" in out


def test_comments_on_clean_commits_are_counted_by_their_verdicts(reading: Reading) -> None:
    (commit,), _, _ = compare(reading)
    (path, start, _), *_ = sorted(commit.by_default | commit.proposed)
    clean = replace(commit, remarks=(), by_default=frozenset({(path, start, start)}))
    of = {"repo": "acme/net", "sha": commit.sha, "path": path}
    judged = [of | {"start": start}, of | {"start": start + 1}, of | {"start": start, "sha": "0" * 40}]
    assert experts.on_clean([clean], judged) == judged[:1]
    assert experts.on_clean([replace(clean, remarks=commit.remarks)], judged) == []


@pytest.mark.parametrize(("which", "number"), [("", 240), ("-second", 93), ("-third", 399), ("-fourth", 600)])
def test_each_remark_is_on_a_commit_that_was_read(which: str, number: int) -> None:
    data = Path(experts.__file__).parent / "data" / "experts"
    commits = {(row["repo"], row["sha"]) for row in read_rows([data / f"commits{which}.jsonl"])}
    remarks = list(read_rows([data / f"remarks{which}.jsonl"]))
    assert len(commits) == number and {(row["repo"], row["sha"]) for row in remarks} <= commits
    assert {row["grade"] for row in remarks} == {1, 2, 3}
