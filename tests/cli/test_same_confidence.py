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


@pytest.mark.usefixtures("learned_ranker")
def test_a_caller_in_another_file_counts_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "lib" / "helpers.py").write_text("import torch\n")
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "1"],
        ["checkout", "-qb", "b"],
    ):
        subprocess.run([*git, *arguments], check=True)
    (tmp_path / "lib" / "helpers.py").write_text(HELPERS)
    said = []
    for command in (
        ("check", tmp_path / "lib" / "helpers.py"),
        ("check", tmp_path),
        ("review", "--repo", tmp_path, "--base", "main"),
    ):
        report = json.loads(run(*command, "--min-confidence", "0", "--format", "json").stdout)
        (finding,) = [f for f in report["findings"] if f["path"] == "lib/helpers.py"]
        assert any("train.py" in e["note"] for e in finding["evidence"]) or "step" in finding["message"]
        said.append((finding["rule"], finding["confidence"], finding["right"], finding["message"]))
    assert said[0] == said[1] == said[2]
