"""Hands due jobs to Celery. A message may be lost, or come twice: the job row is the truth, not the message."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

import structlog
from celery import Celery
from sqlalchemy import Engine, select, update

from service.jobs import QUEUES, Kind
from service.models import Job, JobState

TASK = "ptopt.run"
_AT_ONCE = 500
_IDLE_SECONDS = 0.5
_GAP_SECONDS = 0.02  # at least between two looks into the database: under load many commits wake us
_MAX_PAUSE = 10.0  # after failures, which the scheduler repairs
_log = structlog.get_logger(__name__)


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
        """Raises RuntimeError when nothing is published: for `/readyz`."""
        if not self._thread.is_alive():
            raise RuntimeError("the thread that publishes jobs has ended")
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
