"""Ranker and adapter, one after the other: what is left of both after a process ended anywhere."""

from __future__ import annotations

import click
import pytest

from tests.training.retrain.people import World
from training.retrain.cli import Cycle, _run_all
from training.retrain.records import Records, Run
from training.retrain.steps import NothingToLearnError, Result


class Killed(BaseException):
    """The process ends here."""


class Cycles:
    """Stand-ins for both cycles: each notes that it ran, and ends its run, or fails, or is killed."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.fails: dict[str, BaseException] = {}

    def of(self, *subjects: str) -> dict[str, Cycle]:
        return {subject: self._cycle(subject) for subject in subjects}

    def _cycle(self, subject: str) -> Cycle:
        def run(records: Records, run: Run) -> Result:
            self.ran.append((run.subject, run.id))
            assert run.subject == subject
            if subject in self.fails:
                raise self.fails.pop(subject)
            state, reason = records.register(run, f"{run.id:064}", "", {}, "")
            return Result(state, reason, "h", {"name": subject})

        return run


def retrain(world: World, cycles: Cycles, *subjects: str) -> None:
    records = Records(world.url)
    try:
        _run_all(records, cycles.of(*subjects), "of the test", 60, 0)
    finally:
        records.close()


def states(world: World) -> list[tuple[str, str]]:
    return [(run.subject, run.state) for run in world.runs()]


@pytest.mark.parametrize(("killed", "again"), [("ranker", ["ranker", "adapter"]), ("adapter", ["adapter"])])
def test_what_is_left_is_done_and_nothing_twice(world: World, killed: str, again: list[str]) -> None:
    cycles = Cycles()
    cycles.fails[killed] = Killed()
    with pytest.raises(Killed):
        retrain(world, cycles, "ranker", "adapter")
    cycles.ran.clear()
    retrain(world, cycles, "ranker", "adapter")
    assert [subject for subject, _ in cycles.ran] == again
    assert states(world) == [("ranker", "done"), ("adapter", "done")], "each once"


def test_killed_before_the_second_was_begun(world: World) -> None:
    records, cycles = Records(world.url), Cycles()
    assert isinstance(records.claim("ranker", "of the test", 0.0), Run)
    records.close()
    retrain(world, cycles, "ranker", "adapter")
    assert cycles.ran == [("ranker", 1), ("adapter", 2)]


def test_one_that_fails_does_not_stop_the_other(world: World) -> None:
    cycles = Cycles()
    cycles.fails["ranker"] = NothingToLearnError("too few")
    with pytest.raises(click.ClickException, match="ranker: too few"):
        retrain(world, cycles, "ranker", "adapter")
    assert states(world) == [("ranker", "failed"), ("adapter", "done")]


def test_an_adapter_that_was_switched_off_stops_no_ranker(world: World) -> None:
    records, cycles = Records(world.url), Cycles()
    assert isinstance(records.claim("adapter", "of the test", 0.0), Run)
    records.close()
    retrain(world, cycles, "ranker")
    assert [subject for subject, _ in cycles.ran] == ["ranker"]


def test_a_long_step_that_gets_further_is_not_given_up(world: World) -> None:
    records = Records(world.url)
    for _ in range(12):
        run = records.claim("adapter", "of the test", 0.0)
        assert isinstance(run, Run) and run.id == 1
        records.progressed(run)
    records.close()
