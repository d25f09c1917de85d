"""Hands due jobs to Celery. A message may be lost, or come twice: the job row is the truth, not the message."""

from __future__ import annotations

from datetime import datetime

from celery import Celery
from sqlalchemy import Engine, select, update

from service.jobs import QUEUES, Kind
from service.models import Job, JobState

TASK = "ptopt.run"
_AT_ONCE = 500


def publish_due(engine: Engine, celery: Celery, now: datetime) -> int:
    """Publish the jobs that are due, oldest first, at most 500; how many they were.

    Raises what the broker raises; what could not be published is tried again at the next call. A job that was
    marked by a process that died before it published is found by the sweeper.
    """
    due = (
        select(Job.id)
        .where(Job.state == JobState.QUEUED.value, Job.due_at <= now, Job.published_at.is_(None))
        .where(Job.kind.in_([kind.value for kind in QUEUES]))  # a newer version may know more
        .order_by(Job.due_at, Job.id)
        .limit(_AT_ONCE)
    )
    with engine.execution_options(ptopt_reads=True).begin() as connection:
        if connection.scalars(due.limit(1)).first() is None:  # mostly: and then no lock is taken
            return 0
    with engine.begin() as connection:
        mark = (
            update(Job)
            .where(Job.id.in_(due.with_for_update(skip_locked=True)), Job.published_at.is_(None))
            .values(published_at=now)
            .returning(Job.id, Job.kind)
        )
        jobs = sorted((int(job), Kind(kind)) for job, kind in connection.execute(mark))
    published = 0
    try:
        with celery.producer_pool.acquire(block=True) as producer:
            for job, kind in jobs:
                celery.send_task(TASK, args=[job], queue=QUEUES[kind], producer=producer, retry=False)
                published += 1
    finally:
        if left := [job for job, _ in jobs[published:]]:
            with engine.begin() as connection:
                taken_back = Job.id.in_(left), Job.state == JobState.QUEUED.value
                connection.execute(update(Job).where(*taken_back).values(published_at=None))
    return published
