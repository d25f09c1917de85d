"""The workers and the scheduler of a process that also serves the web application; no broker.

Messages are in memory only. That is enough: the jobs are in the database, and after a restart all of them that are
not finished are published again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

import structlog
from celery import Celery
from celery.concurrency.thread import TaskPool
from fastapi import FastAPI

from bot.app import create_app
from bot.health import Check
from embedded.only_one import only_one
from service import database, leases
from service.settings import Settings
from worker.app import make_app
from worker.job_context import Resources
from worker.periodic_tasks import periodic_tasks
from worker.scheduler import Scheduler

_log = structlog.get_logger(__name__)
_POLLING = 0.02  # seconds between two looks into memory; the default of a second would be felt
_TO_FINISH = 2.0  # seconds that jobs are given to end by themselves when the service stops


class _Threads(TaskPool):  # type: ignore[misc]
    """Celery's pool of threads, that does not wait for what runs when it stops: the job is released."""

    def on_stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


class _Lane:
    """A Celery worker in a thread: jobs of its queues wait for none of other lanes.

    It has an application of its own, because Celery keeps the queues of a worker in it.
    """

    def __init__(self, name: str, app: Celery, queues: list[str], at_once: int) -> None:
        self.ready = threading.Event()
        self._name, self._app, self._queues, self._at_once = name, app, queues, at_once
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._controller: Any = None
        self._stopping = False

    def start(self) -> None:
        self._app.finalize()
        self._thread.start()

    def stop(self) -> None:
        """Take no other job."""
        self._stopping = True
        if self._controller is not None:
            self._controller.stop()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def alive(self) -> bool:
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._controller = self._app.WorkController(
                hostname=f"{self._name}@embedded",
                pool=_Threads,
                concurrency=self._at_once,
                queues=self._queues,
                without_heartbeat=True,
                without_mingle=True,
                without_gossip=True,
                ready_callback=lambda _consumer: self.ready.set(),
            )
            self._controller.start()
        except Exception:
            _log.exception("the worker failed", lane=self._name)
        finally:
            self.ready.set()
            if not self._stopping:
                _log.critical("the worker ended", lane=self._name)


class Embedded:
    """The workers and the scheduler of a process that has no others. `start` brings the database up to date first."""

    def __init__(self, settings: Settings) -> None:
        # As many lanes are left to the others: one of them would be full with a pull request a second.
        share = max(1, min(settings.jobs_per_installation, settings.reviews_at_once // 2))
        self.settings = settings = settings.model_copy(update={"jobs_per_installation": share})
        self.resources = Resources(settings)
        self._lanes = [
            _Lane("review", self._app(), ["review"], settings.reviews_at_once),
            _Lane("command", self._app(), ["command"], 2),
            _Lane("feedback", self._app(), ["feedback"], 1),
            _Lane("training", self._app(), ["training"], 1),
        ]
        self.celery = self._app()
        self._lock = ExitStack()
        self._scheduler = Scheduler(periodic_tasks(self.resources, self.celery))

    def _app(self) -> Celery:
        app = make_app(self.settings, resources=self.resources, broker="memory://localhost/")
        app.conf.update(
            broker_transport_options={"polling_interval": _POLLING}, worker_enable_remote_control=False
        )
        return app

    def start(self, seconds: float = 30.0) -> None:
        """Returns when all lanes take jobs. Raises RuntimeError when they do not within `seconds`.

        Raises DatabaseError when another process has the database.
        """
        self._lock = only_one(self.resources.engine)  # before anything is taken back
        database.upgrade(self.settings.database_url)
        again = leases.recover(self.resources.engine, datetime.now(timezone.utc))
        _log.info("embedded service starting", jobs_begun_again=again)
        self.resources.isolation.start()
        # Without a default application the threads of the workers would not find the task, and end without a word.
        self.celery.finalize()
        self.celery.set_current()
        self.celery.set_default()
        end = time.monotonic() + seconds
        for lane in self._lanes:
            lane.start()
        for lane in self._lanes:
            if not lane.ready.wait(end - time.monotonic()) or not lane.alive():
                raise RuntimeError("a worker did not start; see the log")
        self._scheduler.start()

    def stop(self) -> bool:
        """Take no other job, and release those that do not end soon; False when such a one still runs.

        It may not write any more. The process is to end without waiting for its thread.
        """
        end = time.monotonic() + _TO_FINISH
        self._scheduler.stop(_TO_FINISH / 2)
        for lane in self._lanes:
            lane.stop()
        if "retraining" in self.resources.__dict__:
            self.resources.retraining.stop(_TO_FINISH / 2)
        for lane in self._lanes:
            lane.join(max(0.0, end - time.monotonic()))
        engine = self.resources.engine
        while leases.running(engine) and time.monotonic() < end:
            time.sleep(_POLLING)
        released = leases.release_all(engine, datetime.now(timezone.utc))
        if released:
            _log.info("jobs released", jobs=released)
            return False
        self.resources.close()
        self._lock.close()
        return True

    def alive(self) -> bool:
        """Whether all lanes work."""
        return all(lane.alive() for lane in self._lanes)

    def check(self) -> None:
        """For `/readyz`: raise RuntimeError unless jobs are worked on."""
        if not self.alive():
            raise RuntimeError("the thread of a worker has ended")
        if not self._scheduler.alive():
            raise RuntimeError("a thread of the scheduler has ended")

    def app(self) -> FastAPI:
        """The web application that fills this worker's inbox."""
        checks: Mapping[str, Check] = {"worker": self.check}
        return create_app(self.settings, engine=self.resources.engine, celery=self.celery, checks=checks)
