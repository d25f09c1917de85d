"""Child processes in which files are analysed: what ends them, what they cannot reach, and what a review then says."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS, read_facts
from ptopt.review import review_change
from ptopt.runner import AnalysisError
from service.database import reading
from service.models import EndedAnalyses
from tests.worker.pulls import SLOW
from worker.isolation import CRASHED, TOO_LONG, TOO_MUCH_MEMORY, Isolation
from worker.job_context import Resources

pytestmark = pytest.mark.slow
MEMORY = 1 << 30
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PTOPT_TEST_KILLS", "12"))
CHANGE = Change((whole_file("train.py", SLOW),), ())


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolation]:
    runner = Isolation(seconds=20, memory=MEMORY)
    yield runner
    runner.close()


@pytest.fixture
def impatient() -> Iterator[Isolation]:
    runner = Isolation(seconds=1, memory=MEMORY)
    yield runner
    runner.close()


def test_a_review_is_the_same_as_in_process(isolated: Isolation) -> None:
    here = review_change(CHANGE, config=Config(), facts=NO_FACTS)
    assert here.findings
    assert review_change(CHANGE, config=Config(), facts=NO_FACTS, runner=isolated) == here
    strange = Change((whole_file("train.py", b"# coding: koi8-r\n" + SLOW + b"# \xd0\xd2\n"),), ())
    assert review_change(strange, config=Config(), facts=NO_FACTS, runner=isolated).findings
    files = {"requirements.txt": b"torch>=2.1\n", "pyproject.toml": b"[project]\ndependencies = ['numpy']\n"}
    assert isolated(read_facts, files) == read_facts(files)


def test_what_a_function_raises_goes_through(isolated: Isolation) -> None:
    with pytest.raises(ZeroDivisionError):
        isolated(divmod, 1, 0)


def test_what_takes_too_long_ends_with_its_child(impatient: Isolation) -> None:
    with pytest.raises(AnalysisError, match=TOO_LONG):
        impatient(time.sleep, 600)
    with pytest.raises(AnalysisError, match=TOO_LONG):
        impatient(eval, "[None for _ in iter(int, 1)]")
    assert impatient(divmod, 7, 2) == (3, 1)


def test_nobody_waits_for_the_analysis_of_another(impatient: Isolation) -> None:
    """Not even while many are slow: each of those is cut off after a second, and none has been yet."""
    ends: list[str] = []

    def slow() -> None:
        with pytest.raises(AnalysisError, match=TOO_LONG):
            impatient(time.sleep, 600)
        ends.append("slow")

    impatient.start()
    threads = [threading.Thread(target=slow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(50):  # until all of them have their children
        if len(multiprocessing.active_children()) < 8:
            time.sleep(0.01)
    assert impatient(divmod, 7, 2) == (3, 1)
    ends.append("quick")
    for thread in threads:
        thread.join()
    assert ends[0] == "quick"


def test_a_child_that_has_become_large_is_replaced(isolated: Isolation) -> None:
    small = isolated(eval, "__import__('os').getpid()")
    assert isolated(eval, "__import__('os').getpid()") == small
    assert isolated(eval, "len(b'x' * 200_000_000)") == 200_000_000
    assert isolated(eval, "__import__('os').getpid()") != small


def test_what_is_slow_waits_for_what_is_quick(isolated: Isolation) -> None:
    quick = isolated(os.nice, 0)
    busy = "[None for _ in range(60_000_000)] and __import__('os').nice(0)"
    assert quick < isolated(eval, busy) == 19
    assert isolated(os.nice, 0) == quick


def test_a_closed_runner_starts_no_child() -> None:
    runner = Isolation(seconds=20, memory=MEMORY)
    assert runner(divmod, 7, 2) == (3, 1)
    runner.close()
    with pytest.raises(AnalysisError, match=CRASHED):
        runner(divmod, 7, 2)


def test_ended_analyses_are_counted_by_reason(resources: Resources) -> None:
    settings = resources.settings.model_copy(update={"review_seconds": 1.0})
    limited = Resources(settings)
    for _ in range(2):
        with pytest.raises(AnalysisError):
            limited.isolation(time.sleep, 600)
    with pytest.raises(AnalysisError):
        limited.isolation(bytes, settings.review_memory << 22)
    with reading(limited.engine) as session:
        counted = session.execute(select(EndedAnalyses.reason, EndedAnalyses.number)).all()
    limited.close()
    assert sorted(map(tuple, counted)) == [("memory", 1), ("time", 2)]


def test_what_takes_too_much_memory_ends(isolated: Isolation) -> None:
    with pytest.raises(AnalysisError, match=TOO_MUCH_MEMORY):
        isolated(bytes, 4 * MEMORY)
    assert isolated(divmod, 7, 2) == (3, 1)


def test_a_child_that_dies_is_tried_again_and_then_given_up(isolated: Isolation, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=CRASHED):
        isolated(eval, "__import__('os').abort()")
    assert isolated(divmod, 7, 2) == (3, 1)


def test_a_child_reaches_no_file_and_no_network(isolated: Isolation) -> None:
    with pytest.raises(OSError, match="Too many open files"):
        isolated(socket.socket)
    with pytest.raises(OSError, match="Too many open files"):
        isolated(open, "/etc/hostname")


def test_neither_a_child_nor_its_server_has_a_secret_in_its_environment() -> None:
    """What a process was started with stays readable in /proc, whatever it does to its own copy later."""
    code = """
import os, pathlib
from multiprocessing import forkserver
from worker.isolation import Isolation

isolated = Isolation(seconds=20, memory=1 << 30)
print(isolated(eval, "dict(__import__('os').environ)"))
print(pathlib.Path(f"/proc/{forkserver._forkserver._forkserver_pid}/environ").read_bytes())
print("still ours:", os.environ["PTOPT_SECRET_KEY"] == "hunter2")
isolated.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PTOPT_SECRET_KEY": "hunter2"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PATH" in done.stdout and "still ours: True" in done.stdout
    assert "hunter2" not in done.stdout


@pytest.mark.parametrize("reason", [TOO_LONG, CRASHED])
def test_a_review_says_what_was_skipped(reason: str) -> None:
    def ended(*_: object, **__: object) -> object:
        raise AnalysisError(reason)

    found = review_change(CHANGE, config=Config(), facts=NO_FACTS, runner=ended)  # type: ignore[arg-type]
    assert found.findings == () and found.files_reviewed == 0
    assert [(note.path, note.reason) for note in found.not_reviewed] == [("train.py", reason)]


def test_large_calls_take_turns_and_small_ones_pass_them() -> None:
    runner = Isolation(seconds=20, memory=MEMORY, large_at_once=1)
    ended: list[str] = []

    def derive(password: bytes) -> None:
        with contextlib.suppress(AnalysisError):  # those that have not had their turn at the end
            runner(hashlib.pbkdf2_hmac, "sha256", password, b"salt", 1_000_000)
            ended.append("large")

    threads = [threading.Thread(target=derive, args=(bytes(200_000),)) for _ in range(3)]
    try:
        runner(len, b"")  # starts what children are forked from
        for thread in threads:
            thread.start()
        most = 0
        while not ended:
            most = max(most, len(runner._busy))
            time.sleep(0.01)
        assert most == 1, "several large calls at once"
        assert runner(len, b"small") == 5 and len(ended) < 3
    finally:
        runner.close()
        for thread in threads:
            thread.join()


def test_children_killed_at_random_lose_no_review(isolated: Isolation) -> None:
    """Each review is as it is without the kills."""
    expected = review_change(CHANGE, config=Config(), facts=NO_FACTS)
    review_change(
        CHANGE, config=Config(), facts=NO_FACTS, runner=isolated
    )  # starts what children are forked from
    begun = time.monotonic()
    review_change(CHANGE, config=Config(), facts=NO_FACTS, runner=isolated)
    usual = (
        time.monotonic() - begun
    )  # a review that is killed more often than it can end is given up, by design
    stop, killed = threading.Event(), 0
    pace = random.Random(5)

    def kill() -> None:
        nonlocal killed
        while not stop.wait(max(0.3, usual) * pace.uniform(0.5, 3.0)):
            for child in multiprocessing.active_children():
                child.kill()
                killed += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        while killed < KILLS:
            found = review_change(CHANGE, config=Config(), facts=NO_FACTS, runner=isolated)
            assert found == expected
    finally:
        stop.set()
        thread.join()
