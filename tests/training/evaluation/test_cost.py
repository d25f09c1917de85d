"""What reviews of real commits would read and write, counted without a server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.general import Example, General
from tests.training.evaluation.conftest import CONTEXT, SLOW, STEP
from training.__main__ import main


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A first commit, one that adds a slow loop, one of prose."""
    root = tmp_path / "repository"
    root.mkdir()

    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *name, *arguments], cwd=root, check=True, capture_output=True)

    git("init", "-q")
    for number, (path, text) in enumerate(
        [("a.py", "x = 1\n"), ("train.py", CONTEXT + STEP.format(read=SLOW)), ("README", "prose\n")]
    ):
        (root / path).write_text(text)
        git("add", ".")
        git("commit", "-qm", str(number))
    return root


def count(*arguments: object) -> list[str]:
    done = CliRunner().invoke(main, ["cost", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def tokens(line: str) -> int:
    return int(line.split()[1].replace(",", ""))


def test_a_commit_is_counted_and_paid_for(repository: Path, tmp_path: Path) -> None:
    first, requests, read, written, paid = count(repository, "--price-in", 2, "--price-out", 8)
    assert (
        first == "1 commits, the model asked in 1"
    )  # the first has nothing to compare with, the last no code
    assert tokens(requests) >= 3  # judge, advise, explain
    assert 300 < tokens(read) < 10_000 and 1024 < tokens(written) < 3_000
    assert float(paid.split()[5]) == pytest.approx((2 * tokens(read) + 8 * tokens(written)) / 1e6, abs=1e-6)
    judge = Calibration(JudgeFit(0.0, 0.0, 1.0))
    file = tmp_path / "m.json"
    file.write_text(General("m", judge, (Example("cat-in-loop", "x = 1\n" * 200, False),)).to_json())
    _, fewer, more, few, *none = count(repository, "--model", file)
    assert tokens(fewer) < tokens(requests) and tokens(few) < 10 and not none
    file.write_text(General("m", judge).to_json())
    assert (
        tokens(more) > tokens(count(repository, "--model", file)[2]) + 500
    )  # its examples are sent each time


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["cost", str(tmp_path)])
    assert done.exit_code == 1 and "Traceback" not in done.output
