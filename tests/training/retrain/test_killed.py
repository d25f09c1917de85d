"""A retraining that is killed at each of its points goes on, and ends with one dataset and one registered result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.training.retrain.people import World

ROOT = Path(__file__).parents[3]
STEPS = [
    f"{step} {point}" for step in ("dataset", "fitted", "evaluated") for point in ("made", "written", "noted")
]
POINTS = ["claimed", *STEPS, "registering", "registered"]
# Imports take longer than a step: they are done once, and each retraining is a process forked from there.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from training.retrain import ranker
from training.retrain.records import Records, Run

def retrain(url, folder, work, gold, point):
    def reached(at):
        print(at, flush=True)
        if at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    records = Records(url)
    while not isinstance(run := records.claim("ranker", "of the test", 0.5), Run):
        time.sleep(0.1)
    options = ranker.Options(url, Path(folder), work=(Path(work),), fixes=(), gold=(Path(gold),), reached=reached)
    with records.kept(run, 0.5):
        print(ranker.retrain(records, run, options).state, flush=True)

for line in sys.stdin:
    child = os.fork()
    if not child:
        retrain(*json.loads(line))
        sys.exit()
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Retrain = Callable[[World, str], tuple[int, list[str]]]


@pytest.fixture(scope="module")
def process() -> Iterator[Retrain]:
    """A retraining that is killed at the point; its exit status and the points that it reached."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin and parent.stdout
        to, said = parent.stdin, parent.stdout

        def process(world: World, point: str) -> tuple[int, list[str]]:
            given = [world.url, str(world.folder), str(world.work), str(world.gold), point]
            to.write(f"{json.dumps(given)}\n")
            to.flush()
            reached: list[str] = []
            while not (line := said.readline()).startswith("ended"):
                assert line, "the parent ended"
                reached.append(line.strip())
            code = int(line.split()[1])
            assert code in (0, -signal.SIGKILL)
            return code, reached

        yield process
        to.close()
        assert parent.wait(timeout=60) == 0


@pytest.mark.slow
def test_killed_at_each_point(world: World, process: Retrain) -> None:
    champion = world.active()
    world.answer()
    datasets = set()
    for point in POINTS:
        code, reached = process(world, point)
        assert (code, reached[-1]) == (-signal.SIGKILL, point)
        if (rows := world.folder / "ranker-1" / "rows.jsonl").is_file():
            datasets.add(rows.read_bytes())
    assert len(datasets) == 1, "each time the same dataset"
    (run,) = world.runs()
    assert run.state == "done"
    versions = world.versions()
    assert versions == {champion: "active", run.result: "canary"}
    kinds = [event.kind for event in world.events()]
    assert kinds == ["started", "dataset", "fitted", "evaluated", "canary"]
    assert len(list(world.folder.iterdir())) == 1


@pytest.mark.slow
def test_what_is_done_is_not_done_again(world: World, process: Retrain) -> None:
    world.active()
    world.answer()
    assert process(world, "fitted noted")[0] == -signal.SIGKILL
    code, reached = process(world, "")
    assert code == 0
    assert reached[:3] == ["claimed", "dataset kept", "fitted kept"] and reached[-1] == "canary"


@pytest.mark.slow
def test_a_file_that_was_lost_is_made_again(world: World, process: Retrain) -> None:
    """Another machine goes on, without the folder of the first."""
    world.active()
    world.answer()
    assert process(world, "evaluated noted")[0] == -signal.SIGKILL
    for file in (world.folder / "ranker-1").iterdir():
        file.unlink()
    code, reached = process(world, "")
    assert code == 0 and "dataset made" in reached and reached[-1] == "canary"
    assert [event.kind for event in world.events()] == ["started", "dataset", "fitted", "evaluated", "canary"]
