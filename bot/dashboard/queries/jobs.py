"""Jobs of pull requests, newest first; dead ones may be retried."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from bot.dashboard.queries.listing import Listing, newest
from ptopt.report.text import one_line, visible
from service.jobs import Kind
from service.models import Job, JobState, worth_listing


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job. Only those who may write to the repository see what went wrong, and may retry."""

    id: int
    kind: str
    repository_id: int
    repository: str
    pull: int  # 0 for none
    head_sha: str
    state: str
    attempts: int
    created_at: datetime
    due_at: datetime
    finished_at: datetime | None
    problem: str  # the last line of the error
    error: str
    may_retry: bool


def listing(
    session: Session,
    scope: Collection[int],
    writable: Collection[int],
    state: JobState | None = None,
    before: int | None = None,
    kind: Kind | None = None,
) -> Listing[JobLine]:
    """`writable` are those of the repositories that the viewer may write to. Of all kinds: those that are `worth_listing`."""
    wanted = select(Job).where(Job.repository_id.in_(scope))
    if state is not None:
        wanted = wanted.where(Job.state == state.value)
    wanted = wanted.where(worth_listing() if kind is None else Job.kind == kind.value)
    rows, more = newest(session, wanted, Job.id, before)
    lines = tuple(_line(job, writable) for (job,) in rows)
    return Listing(lines, lines[-1].id if more else None)


def one(session: Session, scope: Collection[int], writable: Collection[int], job_id: int) -> JobLine | None:
    """None for a job that there is not, or not in the scope."""
    found = session.scalars(select(Job).where(Job.id == job_id, Job.repository_id.in_(scope))).first()
    return None if found is None else _line(found, writable)


def kinds(session: Session, scope: Collection[int]) -> list[str]:
    """The kinds that there are jobs of."""
    return sorted(session.scalars(select(Job.kind).where(Job.repository_id.in_(scope)).distinct()))


def counts(session: Session, scope: Collection[int], kind: Kind | None = None) -> dict[str, int]:
    """State -> number of jobs (of the kind, else of those that are listed), all states."""
    wanted = select(Job.state, func.count()).where(Job.repository_id.in_(scope)).group_by(Job.state)
    wanted = wanted.where(worth_listing() if kind is None else Job.kind == kind.value)
    found = {row[0]: row[1] for row in session.execute(wanted)}
    return {state.value: found.get(state.value, 0) for state in JobState}


def _line(job: Job, writable: Collection[int]) -> JobLine:
    writes = job.repository_id in writable
    error = visible(job.error.strip(), keep="\n") if writes else ""
    return JobLine(
        id=job.id,
        kind=job.kind,
        repository_id=job.repository_id,
        repository=job.repository,
        pull=job.pull,
        head_sha=job.head_sha,
        state=job.state,
        attempts=job.attempts,
        created_at=job.created_at,
        due_at=job.due_at,
        finished_at=job.finished_at,
        problem=one_line(error.rsplit("\n", 1)[-1])[:300],
        error=error,
        may_retry=writes and job.state == JobState.DEAD.value,
    )
