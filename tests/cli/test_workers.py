"""A large tree is reviewed by several processes: with the results of one, and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from ptopt.change import whole_file
from ptopt.cli import workers
from ptopt.cli.workers import aside, inspect_in_processes
from ptopt.config import Config
from ptopt.findings import Review
from ptopt.parse_check import MOST_BYTES
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from tests.cli.command import TRAIN

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
FILES = {
    **{f"train{i}.py": TRAIN.encode() for i in range(5)},
    "a.py": b"x = (\n",
    # After it, less than the length of `z.py` is left for files that no rule has a question on.
    "padding.py": (b"# " + b"a" * 97 + b"\n") * (MOST_BYTES // 100 - 1),
    "y.ipynb": b"{}",
    "z.py": b"y = (\n" * 40,
}


def review(**how: Any) -> Review:
    files = [whole_file(path, data) for path, data in sorted(FILES.items())]
    return review_files(iter(files), config=Config(), facts=NO_FACTS, limit_to_change=False, **how)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for a tree of a few files."""
    monkeypatch.setenv("PTOPT_JOBS", "2")
    monkeypatch.setattr(workers, "MANY", 4)
    monkeypatch.setattr(workers, "_TOGETHER", 2)


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[int]]:
    """The processes in which files were looked at, one for each turn."""
    place, inspect = tmp_path / "pids", workers._inspect

    def noted(*args: Any) -> Any:
        with place.open("a") as out:
            out.write(f"{os.getpid()}\n")
        return inspect(*args)

    monkeypatch.setattr(workers, "_inspect", noted)
    return lambda: [int(line) for line in place.read_text().split()] if place.exists() else []


def test_the_review_is_that_of_one_process(small: None, pids: Callable[[], list[int]]) -> None:
    alone = review()
    assert alone.findings
    # The first broken file is named; for the last one nothing is left, wherever it is looked at.
    assert [note.path for note in alone.not_reviewed if note.path.endswith(".py")] == ["a.py"]
    assert review(inspect=inspect_in_processes) == alone
    assert len(pids()) == (len(FILES) + 1) // 2 and os.getpid() not in pids()


def test_a_few_files_are_reviewed_here(
    monkeypatch: pytest.MonkeyPatch, pids: Callable[[], list[int]]
) -> None:
    monkeypatch.setenv("PTOPT_JOBS", "2")
    assert review(inspect=inspect_in_processes) == review()
    assert pids() == []


@pytest.mark.parametrize("jobs", ["1"])
def test_one_process_is_enough_where_that_is_asked_for(
    small: None, monkeypatch: pytest.MonkeyPatch, pids: Callable[[], list[int]], jobs: str
) -> None:
    monkeypatch.setenv("PTOPT_JOBS", jobs)
    assert review(inspect=inspect_in_processes) == review()
    assert pids() == []


def test_a_process_that_is_ended_ends_the_command(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_inspect", lambda *args: os._exit(9))
    with pytest.raises(click.ClickException, match="PTOPT_JOBS=1"):
        review(inspect=inspect_in_processes)


def test_an_error_comes_back(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(workers, "_inspect", fails)
    with pytest.raises(ZeroDivisionError, match="here"):
        review(inspect=inspect_in_processes)


def test_work_aside_runs_in_another_process_where_there_are_many_files(small: None) -> None:
    assert aside(os.getpid, files=3)() == os.getpid()
    wait = aside(os.getpid, files=4)
    assert wait() == wait() != os.getpid()
    assert aside(gc.isenabled, files=4)() is False  # it would walk what goes with the process
    with pytest.raises(click.ClickException, match="PTOPT_JOBS=1"):
        aside(lambda: os._exit(9), files=4)()
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0, files=4)()


@pytest.mark.parametrize("name", ["check", "audit"])
def test_an_interrupted_command_leaves_no_process(tmp_path: Path, name: str) -> None:
    # Where the tests run in the background of a shell, SIGINT is ignored, and a new process would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for i in range(400):
        (tmp_path / f"train{i}.py").write_text(TRAIN * 10)
    command = subprocess.Popen(
        [sys.executable, "-m", "ptopt.cli", name, str(tmp_path)],
        env={**os.environ, "PTOPT_JOBS": "2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    until = time.monotonic() + 60
    while len(found := children.read_text().split()) < 2:
        assert command.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    os.killpg(command.pid, signal.SIGINT)
    _, stderr = command.communicate(timeout=60)
    assert (command.returncode, stderr.strip()) == (130, b"")
    while any(Path(f"/proc/{pid}").exists() for pid in found):
        assert time.monotonic() < until
        time.sleep(0.02)
