"""Hands due jobs to Celery. A message may be lost, or come twice: the job row is the truth, not the message."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import structlog
from celery import Celery
from sqlalchemy import ColumnElement, Engine, Select, and_, func, or_, select, update

from service.jobs import QUEUES, Kind
from service.models import Job, JobState

TASK = "ptopt.run"
_AT_ONCE = 500
_IDLE_SECONDS = 0.5
_GAP_SECONDS = 0.02  # at least between two looks into the database: under load many commits wake us
_MAX_PAUSE = 10.0  # after failures, which the scheduler repairs
_log = structlog.get_logger(__name__)


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


class Dispatcher:
    """The thread that calls `publish` until `stop`. A failure is logged, and tried again after a pause."""

    def __init__(self, publish: Callable[[], object]) -> None:
        self._publish = publish
        self._work = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self._pause = 0.0

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something to publish."""
        self._work.set()

    def stop(self, seconds: float = 5.0) -> None:
        self._stop.set()
        self._work.set()
        self._thread.join(seconds)

    def check(self) -> None:
        """Raises RuntimeError when nothing will be published: for `/readyz`."""
        if not self._thread.is_alive():
            raise RuntimeError("the thread that publishes jobs has ended")

    def check_broker(self) -> None:
        """Raises RuntimeError when the last try to publish failed. Jobs are accepted all the same, and published later."""
        if self._pause:
            raise RuntimeError("jobs cannot be published: is the broker up?")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._work.wait(_IDLE_SECONDS)
            self._work.clear()
            try:
                self._publish()
                self._pause = 0.0
                self._stop.wait(_GAP_SECONDS)
            except Exception:
                self._pause = min(_MAX_PAUSE, 2 * self._pause or _IDLE_SECONDS)
                _log.exception("jobs cannot be published", next_try_seconds=self._pause)
                self._stop.wait(self._pause)
