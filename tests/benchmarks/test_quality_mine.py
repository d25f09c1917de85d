"""The miner finds small fixes and clean commits in tiny clones, always the same ones, and believes no message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import mine
from tests.benchmarks.clones import Repository

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import torch\n\n\ndef step(model, x):\n"
SLOW = HEAD + "    loss = model(x)\n    print(loss.item())\n    return loss\n"
FAST = HEAD + "    return model(x)\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit("start", SLOW)
    return repository


def run(repository: Repository, *options: object) -> list[dict[str, Any]]:
    clones = repository.path.parent.parent
    out = clones.parent / "rows.jsonl"
    assert mine.main(["--clones", str(clones), "--out", str(out), *map(str, options)]) == 0
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def test_a_fix_names_its_words_and_the_lines_at_the_parent(repository: Repository) -> None:
    sha = repository.commit("Speed up: no sync on each step", FAST)
    (row,) = run(repository)
    assert (row["repo"], row["sha"], row["words"]) == ("acme/net", sha, ["speed", "sync"])
    assert row["files"] == [{"path": "train.py", "lines": [[5, 7]], "removed": 3, "added": 1}]
    assert len(row["parent"]) == len(sha) and len(row["date"]) == len("2024-01-31")


def test_names_in_the_code_count_where_the_message_says_nothing(repository: Repository) -> None:
    sha = repository.commit("update", FAST)
    (row,) = run(repository, "--code")
    assert (row["sha"], row["words"]) == (sha, ["item"])
    assert run(repository) == []


def test_a_clean_candidate_has_no_such_words_and_the_lines_of_the_commit(repository: Repository) -> None:
    repository.commit("faster", FAST)
    sha = repository.commit("rename x", FAST.replace("x", "batch"))
    (row,) = run(repository, "--clean")
    assert (row["sha"], row["words"], row["files"][0]["lines"]) == (sha, [], [[4, 5]])


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("x = 1\n", "x = 2\n", "numbers.py"),
        (SLOW, FAST, "tests/test_train.py"),
        (SLOW, SLOW + "x = 1\n" * mine.MOST_LINES + "y = 1\n", "net.py"),
        (SLOW, SLOW.replace("torch", "t\xe9rch"), "n\xe9t.py"),
    ],
    ids=["no torch", "a test", "too large", "an odd path"],
)
def test_other_commits_are_left_out(repository: Repository, before: str, after: str, path: str) -> None:
    repository.commit("more", before, path)
    repository.commit("faster", after, path)
    assert run(repository) == []


def test_commits_of_other_sets_are_left_out(repository: Repository) -> None:
    known = repository.path.parent / "known.jsonl"
    known.write_text(json.dumps({"sha": "0" * 40, "intro_sha": repository.commit("faster", FAST)}) + "\n\n")
    assert run(repository, "--exclude", known) == []


def test_the_same_seed_gives_the_same_rows_and_at_most_so_many(repository: Repository) -> None:
    for number in range(6):
        repository.commit(f"change {number}", FAST + f"# {number}\n")
    chosen = [run(repository, "--clean", "--most", 3, "--seed", seed) for seed in (0, 0, 1, 2, 3)]
    assert chosen[0] == chosen[1] and len(chosen[0]) == 3
    assert any(chosen[0] != other for other in chosen[2:])


def test_a_message_cannot_reach_the_terminal(repository: Repository) -> None:
    repository.commit("faster \x1b[2J\u202e\x7f now", FAST)
    (row,) = run(repository)
    assert row["subject"].isprintable() and row["subject"].startswith("faster")


def test_bare_clones_count_and_folders_that_are_none_do_not(repository: Repository, tmp_path: Path) -> None:
    repository.commit("faster", FAST)
    bare = tmp_path / "clones" / "deep" / "er" / "mirror.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(repository.path), str(bare)], check=True)
    (tmp_path / "clones" / "empty").mkdir()
    broken = tmp_path / "clones" / "broken" / "repo"
    for name in ("objects", "refs"):
        (broken / name).mkdir(parents=True)
    (broken / "HEAD").write_text("nothing\n")
    rows = run(repository)
    assert len(rows) == 2 and rows[0]["sha"] == rows[1]["sha"]
    assert mine.clone_name(repository.path) == "acme/net" and mine.clone_name(bare) == ""


def test_the_command(repository: Repository) -> None:
    sha = repository.commit("faster", FAST)
    command = [sys.executable, "-m", "benchmarks.quality", "mine", "--clones", str(repository.path.parent)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["sha"] == sha and done.stderr == "1 candidates\n"
