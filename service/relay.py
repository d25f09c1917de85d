"""Hands due jobs to Celery. A message may be lost, or come twice: the job row is the truth, not the message."""

from __future__ import annotations

from datetime import datetime

from celery import Celery
from sqlalchemy import ColumnElement, Engine, Select, and_, func, or_, select, update

from service.jobs import QUEUES, Kind
from service.models import Job, JobState

TASK = "ptopt.run"
_AT_ONCE = 500


def publish_due(engine: Engine, celery: Celery, now: datetime, per_installation: int | None = None) -> int:
    """Publish the jobs that are due, at most 500; how many they were.

    Of one kind, each installation has at most `per_installation` on their way or running: its others wait here, where
    nobody stands behind them. They take turns, and those of one installation go oldest first.

    Raises what the broker raises; what could not be published is tried again at the next call. A job that was
    marked by a process that died before it published is found by the sweeper.
    """
    waits = and_(Job.state == JobState.QUEUED.value, Job.published_at.is_(None))
    # A newer version may know more kinds.
    due = and_(waits, Job.due_at <= now, Job.kind.in_([kind.value for kind in QUEUES]))
    with engine.execution_options(ptopt_reads=True).begin() as connection:
        if connection.scalar(select(Job.id).where(due).limit(1)) is None:  # mostly: and then no lock is taken
            return 0
        turns = _turns(due, per_installation)
        if connection.execute(turns.limit(1)).first() is None:
            return 0
    with engine.begin() as connection:
        order = {int(row.id): at for at, row in enumerate(connection.execute(turns.limit(_AT_ONCE)))}
        chosen = select(Job.id).where(Job.id.in_(order), waits).with_for_update(skip_locked=True)
        mark = update(Job).where(Job.id.in_(chosen), waits).values(published_at=now)
        marked = connection.execute(mark.returning(Job.id, Job.kind))
        jobs = sorted(((int(job), Kind(kind)) for job, kind in marked), key=lambda job: order[job[0]])
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


def _turns(due: ColumnElement[bool], per_installation: int | None) -> Select[int]:
    """The due jobs in the order in which they are published: the first of each installation, the second of each."""
    same = Job.installation_id, Job.kind
    turn = func.row_number().over(partition_by=same, order_by=(Job.due_at, Job.id)).label("turn")
    waiting = select(Job.id, *same, Job.due_at, turn).where(due).subquery()
    turns = select(waiting.c.id).order_by(waiting.c.turn, waiting.c.due_at, waiting.c.id)
    if per_installation is None:
        return turns
    on_their_way = and_(Job.state == JobState.QUEUED.value, Job.published_at.is_not(None))
    taken = select(*same, func.count().label("number"))
    taken = taken.where(or_(on_their_way, Job.state == JobState.RUNNING.value)).group_by(*same)
    held = taken.subquery()
    mine = and_(
        held.c.installation_id == waiting.c.installation_id,
        held.c.kind == waiting.c.kind,
    )
    free = per_installation - func.coalesce(held.c.number, 0)
    return turns.outerjoin(held, mine).where(waiting.c.turn <= free)
