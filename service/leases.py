"""Who works on which job. The rows of the table decide, so that it does not matter who dies, or what is delivered
twice: every change of a running job names its owner, and the owner's lease runs out unless it is renewed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, Update, and_, func, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from service import inbox
from service.jobs import Kind, NewJob
from service.models import Job, JobState

_WAIT = timedelta(seconds=1)  # until the next try, while another job works on the same pull request
_ERROR_LIMIT = 8_000  # characters of an error that are kept
_GIVE_UP = timedelta(hours=24)  # of deferrals
_QUEUED, _RUNNING = Job.state == JobState.QUEUED.value, Job.state == JobState.RUNNING.value


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that `owner` works on. The fields are those of `service.models.Job`."""

    id: int
    owner: str
    kind: Kind
    installation_id: int
    repository_id: int
    repository: str
    pull: int
    head_sha: str
    subject: str
    payload: dict[str, Any]  # as stored, see `service.jobs.load`
    actor: str
    delivery: str
    attempts: int  # this one included
    deferrals: int
    created_at: datetime


def claim(
    engine: Engine, job_id: int, owner: str, now: datetime, *, lease: float, max_attempts: int
) -> Claim | None:
    """Begin to work on a queued job that is due; None when there is nothing to begin.

    A review that a newer one follows is superseded here. While another job works on the same pull request, this
    one is put back for a second. `lease` is in seconds.
    """
    try:
        with engine.begin() as connection:
            return _claim(connection, job_id, owner, now, now + timedelta(seconds=lease), max_attempts)
    except IntegrityError:  # two at once: the other one was faster
        with engine.begin() as connection:
            connection.execute(_put_back(job_id, now + _WAIT))
        return None


def _claim(
    connection: Connection, job_id: int, owner: str, now: datetime, until: datetime, max_attempts: int
) -> Claim | None:
    job = connection.execute(select(Job.__table__).where(Job.id == job_id).with_for_update()).one_or_none()
    if job is None or job.state != JobState.QUEUED.value:
        return None  # a message that came twice, or late
    if job.due_at > now:
        connection.execute(_put_back(job_id, job.due_at))
        return None
    if job.kind == Kind.REVIEW.value:
        if _followed(connection, job):
            over = _over(JobState.SUPERSEDED, now, error="superseded by a newer push")
            connection.execute(update(Job).where(Job.id == job_id, _QUEUED).values(over))
            return None
        older = and_(_other_reviews(job), not_(_is_later(job)), _QUEUED)
        connection.execute(
            update(Job)
            .where(older)
            .values(_over(JobState.SUPERSEDED, now, error="superseded by a newer push"))
        )
    if job.attempts >= max_attempts:
        over = _over(JobState.DEAD, now, error=job.error or f"started {job.attempts} times, never finished")
        connection.execute(update(Job).where(Job.id == job_id, _QUEUED).values(over))
        return None
    running = and_(Job.repository_id == job.repository_id, Job.pull == job.pull, _RUNNING)
    if job.pull and connection.scalar(select(Job.id).where(running).limit(1)) is not None:
        connection.execute(_put_back(job_id, now + _WAIT))
        return None
    begun = update(Job).where(Job.id == job_id, _QUEUED)
    begun = begun.values(
        state=JobState.RUNNING.value, owner=owner, lease_until=until, attempts=job.attempts + 1
    )
    connection.execute(begun)
    return _as_claim(job, owner)


def _as_claim(job: Row[Any], owner: str) -> Claim:
    return Claim(
        id=job.id,
        owner=owner,
        kind=Kind(job.kind),
        installation_id=job.installation_id,
        repository_id=job.repository_id,
        repository=job.repository,
        pull=job.pull,
        head_sha=job.head_sha,
        subject=job.subject,
        payload=job.payload,
        actor=job.actor,
        delivery=job.delivery,
        attempts=job.attempts + 1,
        deferrals=job.deferrals,
        created_at=job.created_at,
    )


def renew(engine: Engine, job: Claim, now: datetime, *, lease: float) -> bool:
    """Extend the lease; False when the job is no longer ours."""
    until = now + timedelta(seconds=lease)
    return _guarded(engine, job, {"lease_until": until})


def is_stale(engine: Engine, job: Claim) -> bool:
    """Whether a newer review of the same pull request waits or runs."""
    if job.kind is not Kind.REVIEW:
        return False
    with engine.execution_options(ptopt_reads=True).connect() as connection:
        return _followed(connection, job)


def is_ours(connection: Connection, job: Claim) -> bool:
    """Whether we still work on the job; it then stays so until the end of the transaction."""
    ours = select(Job.id).where(Job.id == job.id, _RUNNING, Job.owner == job.owner)
    return connection.scalar(ours.with_for_update()) is not None


def finish(engine: Engine, job: Claim, now: datetime, *, note: str = "") -> bool:
    """The job is done. Its payload, which may quote people, is no longer needed."""
    return _guarded(engine, job, _over(JobState.DONE, now, error=note) | {"payload": {}})


def supersede(engine: Engine, job: Claim, now: datetime, *, note: str) -> bool:
    """The job did nothing, and need not; the same key may be queued again."""
    return _guarded(engine, job, _over(JobState.SUPERSEDED, now, error=note))


def defer(engine: Engine, job: Claim, now: datetime, *, seconds: float | None, error: str) -> bool:
    """GitHub is not available now: come back after `seconds`, or with None ever later, from 5 s to 15 min.

    The worker lived, so crashes are counted anew: three in a row make a job suspect, three in a bad hour do not. After
    24 hours of this the job is dead.
    """
    if now - job.created_at > _GIVE_UP and job.deferrals:
        return _guarded(engine, job, _over(JobState.DEAD, now, error=error))
    wait = backoff(job.deferrals, 5, 900) if seconds is None else seconds + random.uniform(0, 5)  # noqa: S311
    again = _again(now + timedelta(seconds=wait), error)
    return _guarded(engine, job, again | {"attempts": 0, "deferrals": job.deferrals + 1})


def fail(engine: Engine, job: Claim, now: datetime, *, max_attempts: int, error: str) -> bool:
    """An error of ours: try again, but not for ever."""
    if job.attempts >= max_attempts:
        return _guarded(engine, job, _over(JobState.DEAD, now, error=error))
    wait = timedelta(seconds=backoff(job.attempts - 1, 5, 300))
    return _guarded(engine, job, _again(now + wait, error))


def release(engine: Engine, job: Claim, now: datetime) -> bool:
    """The worker is told to stop: the job is another's, at once, and this was no attempt."""
    return _guarded(engine, job, _again(now, "") | {"attempts": job.attempts - 1})


def running(engine: Engine) -> int:
    """How many jobs are worked on."""
    with engine.execution_options(ptopt_reads=True).connect() as connection:
        return connection.scalar(select(func.count()).select_from(Job).where(_RUNNING)) or 0


def release_all(engine: Engine, now: datetime) -> int:
    """The only process on this database stops: what runs is to be run again, and this was no attempt."""
    with engine.begin() as connection:
        again = _again(now, "") | {"attempts": Job.attempts - 1}
        return connection.execute(update(Job).where(_RUNNING).values(again)).rowcount


def ensure_review(engine: Engine, job: Claim, head_sha: str, now: datetime) -> None:
    """See to it that the head that GitHub has now is reviewed: its delivery may be late, or lost."""
    new = NewJob(
        kind=Kind.REVIEW,
        installation_id=job.installation_id,
        repository_id=job.repository_id,
        repository=job.repository,
        pull=job.pull,
        head_sha=head_sha,
    )
    with engine.begin() as connection:
        inbox.add(connection, [new], now)


def sweep(engine: Engine, now: datetime, *, lease: float, max_attempts: int) -> tuple[int, int]:
    """Find what was lost: jobs whose worker went silent, and messages that nobody took.

    Returns how many jobs of each sort were found.
    """
    silent = and_(_RUNNING, or_(Job.lease_until.is_(None), Job.lease_until < now))
    lost = and_(_QUEUED, _is_lost(now, timedelta(seconds=lease)))
    with engine.begin() as connection:
        poison = update(Job).where(silent, Job.attempts >= max_attempts)
        dead = connection.execute(
            poison.values(
                _over(
                    JobState.DEAD,
                    now,
                    error="the worker died each time, the last time without an error message",
                )
            )
        )
        again = _begin_again(connection, silent, now, "the worker stopped responding")
        unpublished = connection.execute(update(Job).where(lost).values(published_at=None))
    return dead.rowcount + again, unpublished.rowcount


def _is_lost(now: datetime, lease: timedelta) -> ColumnElement[bool]:
    """A message is given a lease to be taken, and more the longer its job has been due, up to eight leases.

    It may only wait behind others. Sent once more each time, they would fill the broker while no worker is there.
    """
    waits = [lease * 2**times for times in range(4)]
    early = (and_(Job.published_at < now - wait, Job.due_at > now - 2 * wait) for wait in waits)
    return or_(*early, Job.published_at < now - waits[-1])


def recover(engine: Engine, now: datetime) -> int:
    """At the start of the only process on this database: nothing runs, and no message is on its way."""
    with engine.begin() as connection:
        again = _begin_again(connection, _RUNNING, now, "the service was stopped")
        connection.execute(update(Job).where(_QUEUED).values(published_at=None))
    return again


def _begin_again(connection: Connection, broken_off: ColumnElement[bool], now: datetime, error: str) -> int:
    """Queue what was broken off, later each time: else the first in the line is the one that is always hit."""
    found = select(Job.id, Job.attempts).where(broken_off).with_for_update(skip_locked=True)
    jobs = connection.execute(found).all()
    for job in jobs:
        wait = timedelta(seconds=backoff(job.attempts - 1, 2, 60))
        connection.execute(update(Job).where(Job.id == job.id, broken_off).values(_again(now + wait, error)))
    return len(jobs)


def retry(engine: Engine, job_id: int, now: datetime) -> bool:
    """Queue a dead job again, with all its attempts; False when there is no such dead job."""
    dead = update(Job).where(Job.id == job_id, Job.state == JobState.DEAD.value)
    fresh = _again(now, "") | {"attempts": 0, "deferrals": 0, "finished_at": None, "created_at": now}
    with engine.begin() as connection:
        return connection.execute(dead.values(fresh)).rowcount == 1


def backoff(times: int, first: float, most: float) -> float:
    """Seconds to wait, doubled each time, with up to a quarter less so that not all come back at once."""
    return min(most, first * 2.0 ** min(times, 30)) * random.uniform(0.75, 1.0)  # noqa: S311


def _followed(connection: Connection, job: Claim | Row[Any]) -> bool:
    """Whether a newer review of the same pull request waits or runs."""
    newer = and_(_other_reviews(job), _is_later(job), or_(_QUEUED, _RUNNING))
    return connection.scalar(select(Job.id).where(newer).limit(1)) is not None


def _other_reviews(job: Claim | Row[Any]) -> ColumnElement[bool]:
    same_pull = and_(Job.repository_id == job.repository_id, Job.pull == job.pull)
    return and_(same_pull, Job.kind == Kind.REVIEW.value, Job.id != job.id)


def _is_later(job: Claim | Row[Any]) -> ColumnElement[bool]:
    """By when it was requested. The id only settles a tie: a review that is requested once more keeps its own."""
    return or_(Job.created_at > job.created_at, and_(Job.created_at == job.created_at, Job.id > job.id))


def _put_back(job_id: int, due: datetime) -> Update:
    return update(Job).where(Job.id == job_id, _QUEUED).values(due_at=due, published_at=None)


def _over(state: JobState, now: datetime, *, error: str) -> dict[str, Any]:
    return {
        "state": state.value,
        "finished_at": now,
        "lease_until": None,
        "published_at": None,
        "error": error[:_ERROR_LIMIT],
    }


def _again(due: datetime, error: str) -> dict[str, Any]:
    return {
        "state": JobState.QUEUED.value,
        "due_at": due,
        "published_at": None,
        "lease_until": None,
        "owner": "",
        "error": error[:_ERROR_LIMIT],
    }


def _guarded(engine: Engine, job: Claim, values: dict[str, Any]) -> bool:
    ours = update(Job).where(Job.id == job.id, _RUNNING, Job.owner == job.owner)
    with engine.begin() as connection:
        return connection.execute(ours.values(values)).rowcount == 1
