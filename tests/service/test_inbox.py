"""Deliveries become jobs: once each, durably, many in one transaction."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select, text, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from ptopt.github.values import Actor
from service.database import reading
from service.inbox import Arrival, Inbox, accept, add, store
from service.jobs import (
    CommandPayload,
    InstallationPayload,
    InstalledRepository,
    Kind,
    NewJob,
    ReviewPayload,
    dump,
    load,
)
from service.models import DeliveryRow, Job, JobState

_EAST = timezone(timedelta(hours=9))
NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def review(head: str = "a", **more: Any) -> NewJob:
    return NewJob(Kind.REVIEW, 1, 2, "octo/models", 3, head, **more)


def jobs(engine: Engine) -> list[Job]:
    with reading(engine) as session:
        return list(session.scalars(select(Job).order_by(Job.id)))


def count(engine: Engine, table: type[Any]) -> int:
    with reading(engine) as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_delivery_and_its_jobs_are_stored(engine: Engine) -> None:
    new = review(delay=10, payload=ReviewPayload(full=True), actor="dev", subject="s")
    assert accept(engine, "g1", "pull_request", "opened", 1, [new], NOW)
    (job,) = jobs(engine)
    assert (job.kind, job.installation_id, job.repository_id, job.repository) == (
        "review",
        1,
        2,
        "octo/models",
    )
    assert (job.pull, job.head_sha, job.subject, job.actor) == (3, "a", "s", "dev")
    assert (job.payload, job.delivery, job.state) == ({"requested": False, "full": True}, "g1", "queued")
    assert job.due_at == NOW + timedelta(seconds=10)
    assert (job.created_at, job.published_at, job.lease_until, job.attempts) == (NOW, None, None, 0)
    with reading(engine) as session:
        row = session.scalars(select(DeliveryRow)).one()
    assert (row.guid, row.event, row.action, row.installation_id) == ("g1", "pull_request", "opened", 1)
    assert row.received_at == NOW


def test_a_guid_is_claimed_once(engine: Engine) -> None:
    assert accept(engine, "g1", "e", "", None, [review("a")], NOW)
    assert not accept(engine, "g1", "e", "", None, [review("b")], NOW)
    assert [job.head_sha for job in jobs(engine)] == ["a"]


def test_another_delivery_with_the_same_key_adds_no_job(engine: Engine) -> None:
    assert accept(engine, "g1", "e", "", None, [review("a")], NOW)
    assert accept(engine, "g2", "e", "", None, [review("a"), review("b")], NOW)
    assert [(job.head_sha, job.delivery) for job in jobs(engine)] == [("a", "g1"), ("b", "g2")]


@pytest.mark.parametrize(
    ("state", "again"), [(state, state is JobState.SUPERSEDED) for state in JobState], ids=str
)
def test_only_a_superseded_review_is_queued_again(engine: Engine, state: JobState, again: bool) -> None:
    accept(engine, "g1", "e", "", 1, [review("a")], NOW)
    old = {"state": state.value, "attempts": 2, "deferrals": 1, "published_at": NOW, "error": "e"}
    with engine.begin() as connection:
        connection.execute(update(Job).values(**old, finished_at=NOW))
    later = NOW + timedelta(minutes=5)
    accept(engine, "g2", "e", "", 1, [review("a", payload=ReviewPayload(requested=True))], later)
    (job,) = jobs(engine)
    if again:
        assert (job.state, job.attempts, job.deferrals, job.error) == ("queued", 0, 0, "")
        assert (job.published_at, job.finished_at) == (None, None)
        assert (job.delivery, job.payload) == ("g2", {"requested": True, "full": False})
        assert job.created_at == job.due_at == later
    else:
        assert (job.state, job.attempts, job.delivery, job.payload) == (state.value, 2, "g1", {})


def test_other_kinds_are_never_queued_again(engine: Engine) -> None:
    command = NewJob(Kind.COMMAND, 1, 2, "octo/models", 3, subject="issue-9-0")
    accept(engine, "g1", "e", "", 1, [command], NOW)
    with engine.begin() as connection:
        connection.execute(update(Job).values(state=JobState.SUPERSEDED.value))
    accept(engine, "g2", "e", "", 1, [command], NOW)
    assert [job.state for job in jobs(engine)] == ["superseded"]


def test_a_batch_answers_each_of_its_deliveries(engine: Engine) -> None:
    accept(engine, "known", "e", "", 1, [], NOW)
    arrivals = [
        Arrival(guid, "e", "", 1, [review(head)], NOW)
        for guid, head in (("z", "1"), ("known", "2"), ("a", "3"), ("z", "4"), ("b", "1"))
    ]
    with engine.begin() as connection:
        assert store(connection, arrivals) == [True, False, True, False, True]
    assert sorted((job.head_sha, job.delivery) for job in jobs(engine)) in (
        [("1", "b"), ("3", "a")],
        [("1", "z"), ("3", "a")],
    )
    assert count(engine, DeliveryRow) == 4


def test_the_transaction_is_one(engine: Engine) -> None:
    """A job that the database refuses takes its delivery with it."""
    bad = NewJob(Kind.REVIEW, 1, 2, None, 3, "a")  # type: ignore[arg-type]
    with pytest.raises(SQLAlchemyError):
        accept(engine, "g1", "e", "", 1, [review("b"), bad], NOW)
    assert count(engine, DeliveryRow) == count(engine, Job) == 0


def test_of_a_batch_the_first_of_a_key_is_queued_again(engine: Engine) -> None:
    accept(engine, "g1", "e", "", 1, [review("a")], NOW)
    with engine.begin() as connection:
        connection.execute(update(Job).values(state=JobState.SUPERSEDED.value))
    arrivals = [
        Arrival(guid, "e", "", 1, [review("b"), review("a"), review("a")], NOW) for guid in ("z", "y")
    ]
    with engine.begin() as connection:
        assert store(connection, arrivals) == [True, True]
    assert [(job.head_sha, job.delivery, job.state) for job in jobs(engine)] == [
        ("a", "z", "queued"),
        ("b", "z", "queued"),
    ]


def test_values_come_back_as_they_were(engine: Engine) -> None:
    odd = "\"'\\ \u2028 \U0001f600 %s :x ?"
    payload = CommandPayload("issue", 2**63 - 1, None, odd, None, Actor(0, odd, True))
    several = InstallationPayload("created", 1, odd, [InstalledRepository(2**63 - 1, odd, True)], [])
    new = NewJob(Kind.COMMAND, 2**63 - 1, 2**63 - 1, "o'o/m\"%", 3, "00", "12", payload=payload, actor="null")
    other = NewJob(Kind.INSTALLATION, payload=several)
    assert accept(engine, "g1", "e", "", None, [new, other], NOW.replace(microsecond=1).astimezone(_EAST))
    installed, job = sorted(jobs(engine), key=lambda one: one.pull)
    assert (load(Kind.COMMAND, job.payload), load(Kind.INSTALLATION, installed.payload)) == (payload, several)
    assert (job.payload, job.repository, job.actor) == (dump(payload), "o'o/m\"%", "null")
    assert (job.repository_id, job.head_sha, job.subject) == (2**63 - 1, "00", "12")
    assert job.created_at == job.due_at == NOW.replace(microsecond=1)


def test_times_are_compared_as_sqlalchemy_writes_them(engine: Engine) -> None:
    accept(engine, "g1", "e", "", None, [review("a")], NOW)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).where(Job.due_at <= NOW)) == 1
        assert session.scalar(select(func.count()).where(Job.due_at == NOW)) == 1
        assert session.scalar(select(func.count()).where(Job.due_at < NOW)) == 0


def test_jobs_without_a_delivery(engine: Engine) -> None:
    with engine.begin() as connection:
        add(connection, [], NOW)
        add(connection, [review("a", delay=2)], NOW)
        add(connection, [review("a")], NOW)
    (job,) = jobs(engine)
    assert (job.delivery, job.due_at) == ("", NOW + timedelta(seconds=2))


# -- the thread --------------------------------------------------------------------------------------------


@pytest.fixture
def inbox(engine: Engine) -> Iterator[Inbox]:
    inbox = Inbox(engine)
    yield inbox
    inbox.close()


def test_many_at_once_share_commits(engine: Engine, inbox: Inbox) -> None:
    commits: list[object] = []
    event.listen(engine, "commit", commits.append)

    async def deliver() -> list[bool]:
        each = (inbox.accept(f"g{i}", "e", "", 1, [review(str(i))]) for i in range(200))
        return await asyncio.gather(*each)

    assert asyncio.run(deliver()) == [True] * 200
    assert count(engine, DeliveryRow) == count(engine, Job) == 200
    assert len(commits) < 50


def test_it_is_committed_when_accept_returns(engine: Engine, inbox: Inbox) -> None:
    async def deliver() -> None:
        assert await inbox.accept("g", "e", "", 1, [review()])
        assert count(engine, Job) == 1
        assert not await inbox.accept("g", "e", "", 1, [review("b")])

    asyncio.run(deliver())
    assert count(engine, Job) == 1


def test_one_bad_delivery_does_not_harm_its_neighbours(engine: Engine, inbox: Inbox) -> None:
    bad = NewJob(Kind.REVIEW, 1, 2, None, 3, "bad")  # type: ignore[arg-type]

    async def deliver() -> list[bool | BaseException]:
        each = (inbox.accept(f"g{i}", "e", "", 1, [bad if i == 7 else review(str(i))]) for i in range(20))
        return await asyncio.gather(*each, return_exceptions=True)

    answers = asyncio.run(deliver())
    assert isinstance(answers.pop(7), SQLAlchemyError)
    assert answers == [True] * 19
    assert count(engine, DeliveryRow) == count(engine, Job) == 19


def test_a_database_that_is_away_is_an_error_and_then_forgotten(engine: Engine, inbox: Inbox) -> None:
    async def deliver(guid: str) -> bool:
        return await inbox.accept(guid, "e", "", 1, [review(guid)])

    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs RENAME TO elsewhere"))
    with pytest.raises(SQLAlchemyError):
        asyncio.run(deliver("g1"))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO jobs"))
    assert asyncio.run(deliver("g1"))


def test_somebody_is_told_of_new_jobs(engine: Engine) -> None:
    told: list[int] = []
    inbox = Inbox(engine, on_due=lambda: told.append(count(engine, Job)))

    async def deliver() -> None:
        await inbox.accept("g1", "ping", "", 1, [])
        await inbox.accept("g2", "e", "", 1, [review()])
        await inbox.accept("g2", "e", "", 1, [review()])

    asyncio.run(deliver())
    inbox.close()
    assert told == [1]


def test_close_stores_what_waits_and_refuses_more(engine: Engine) -> None:
    inbox = Inbox(engine)

    async def deliver() -> list[bool]:
        waiting = [asyncio.ensure_future(inbox.accept(f"g{i}", "e", "", 1, [])) for i in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(inbox.close)
        with pytest.raises(RuntimeError, match="closed"):
            await inbox.accept("late", "e", "", 1, [])
        return await asyncio.gather(*waiting)

    assert asyncio.run(deliver()) == [True] * 20
    assert count(engine, DeliveryRow) == 20
    assert not inbox.alive()


def test_a_client_that_leaves_does_not_stop_the_thread(engine: Engine, inbox: Inbox) -> None:
    async def deliver() -> bool:
        left = asyncio.ensure_future(inbox.accept("g1", "e", "", 1, []))
        await asyncio.sleep(0)
        left.cancel()
        return await inbox.accept("g2", "e", "", 1, [])

    assert asyncio.run(deliver())
    assert inbox.alive()
    assert count(engine, DeliveryRow) == 2


_KILLED = """
import asyncio, os, sys
from service.inbox import Inbox
from service.jobs import Kind, NewJob
from service.database import engine

async def deliver(inbox, numbers):
    for i in numbers:
        await inbox.accept(f"g{i}", "e", "", 1, [NewJob(Kind.REVIEW, 1, 2, "o/m", 3, str(i))])
        os.write(1, b"%d\\n" % i)

async def main():
    inbox = Inbox(engine(sys.argv[1]))
    numbers = iter(range(100_000))
    await asyncio.gather(*(deliver(inbox, numbers) for _ in range(8)))

asyncio.run(main())
"""


def test_what_was_answered_survives_kill_9(database_url: str, engine: Engine) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, database_url], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline() for _ in range(300)]
        process.send_signal(signal.SIGKILL)
        answered += process.stdout.readlines()
    accepted = {f"g{int(line)}" for line in answered if line.endswith(b"\n")}
    with reading(engine) as session:
        stored = set(session.scalars(select(DeliveryRow.guid)))
        with_job = set(session.scalars(select(Job.delivery)))
    assert len(accepted) >= 300
    assert accepted <= stored
    assert stored == with_job


def test_errors_do_not_show_what_was_to_be_stored(engine: Engine) -> None:
    bad = NewJob(
        Kind.COMMAND,
        1,
        2,
        None,
        3,
        payload=CommandPayload("issue", 1, None, "geheim", None, Actor(1, "x", False)),
    )  # type: ignore[arg-type]
    with pytest.raises(SQLAlchemyError) as caught:
        accept(engine, "g1", "e", "", 1, [bad], NOW)
    assert "[SQL parameters hidden" in str(caught.value)
    assert not isinstance(caught.value, OperationalError)
