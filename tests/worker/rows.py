"""Jobs in a database, for the tests of the workers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Engine, select, update

from service import inbox, leases
from service.database import reading
from service.jobs import Kind, NewJob
from service.leases import Claim
from service.models import Job

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def add(
    engine: Engine,
    head: str = "a",
    *,
    kind: Kind = Kind.REVIEW,
    pull: int = 3,
    now: datetime = NOW,
    **more: Any,
) -> int:
    """Add a job; its id."""
    given = {"installation_id": 1, "repository_id": 2, "repository": "octo/models"} | more
    new = NewJob(kind, pull=pull, head_sha=head, **given)
    with engine.begin() as connection:
        inbox.add(connection, [new], now)
    with reading(engine) as session:
        found = select(Job.id).where(Job.kind == kind.value, Job.pull == pull, Job.head_sha == head)
        return session.scalars(found.order_by(Job.id.desc())).first() or 0


def row(engine: Engine, job_id: int) -> Job:
    with reading(engine) as session:
        return session.get_one(Job, job_id)


def change(engine: Engine, job_id: int, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(update(Job).where(Job.id == job_id).values(**values))


def claim(engine: Engine, job_id: int, owner: str = "me", now: datetime = NOW) -> Claim | None:
    return leases.claim(engine, job_id, owner, now, lease=60, max_attempts=3)


def claimed(engine: Engine, job_id: int, owner: str = "me", now: datetime = NOW) -> Claim:
    job = claim(engine, job_id, owner, now)
    assert job is not None
    return job
