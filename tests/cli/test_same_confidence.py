"""`check` and `review` say the same of the same line: they read the same files around it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import run

HELPERS = """\
import torch


def read_number(tensor: torch.Tensor):
    return tensor.cuda().sum().item()
"""
TRAIN = """\
import torch
from lib.helpers import read_number


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(read_number(loss))
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without a commit, with a function and its caller in files that git does not track."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "lib" / "helpers.py").write_text(HELPERS)
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def helper(*command: str | Path) -> tuple[object, ...]:
    """What is said of the helper, and how surely."""
    report = json.loads(run(*command, "--min-confidence", "0", "--format", "json").stdout)
    (finding,) = [f for f in report["findings"] if f["path"] == "lib/helpers.py"]
    assert any("train.py" in e["note"] for e in finding["evidence"]) or "step" in finding["message"]
    return finding["rule"], finding["confidence"], finding["right"], finding["message"]


@pytest.mark.usefixtures("learned_ranker")
def test_a_caller_in_another_file_counts_in_both(repository: Path) -> None:
    (repository / "lib" / "helpers.py").write_text("import torch\n")
    for arguments in (["add", "."], ["commit", "-qm", "1"], ["checkout", "-qb", "b"]):
        git(repository, *arguments)
    (repository / "lib" / "helpers.py").write_text(HELPERS)
    file = helper("check", repository / "lib" / "helpers.py")
    folder = helper("check", repository)
    assert file == folder == helper("review", "--repo", repository, "--base", "main")


@pytest.mark.usefixtures("learned_ranker")
def test_a_caller_counts_before_git_tracks_it(repository: Path) -> None:
    before = helper("check", repository)
    git(repository, "add", ".")
    added = helper("check", repository)
    git(repository, "commit", "-qm", "1")
    assert before == added == helper("check", repository)


@pytest.mark.usefixtures("learned_ranker")
def test_a_baseline_that_names_the_script_changes_nothing(repository: Path) -> None:
    """A file that is no code says nothing of how often code runs: the tool's own baseline least of all."""

    def reviewed() -> list[tuple[str, float]]:
        wanted = ("--min-confidence", "0", "--budget", "99", "--format", "json")
        found = json.loads(run("review", "--repo", repository, "--base", "HEAD~1", *wanted).stdout)
        return [(f["fingerprint"], f["confidence"]) for f in found["findings"]]

    (repository / "empty").write_text("")
    git(repository, "add", "empty")
    git(repository, "commit", "-qm", "1")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "2")
    before = reviewed()
    (repository / "notes.json").write_text('{"places": ["train.py", "lib/helpers.py"]}')
    git(repository, "add", ".")
    git(repository, "commit", "-q", "--amend", "-m", "2")
    assert before and reviewed() == before
