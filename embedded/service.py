"""The worker and the scheduler of a process that also serves the web application; no broker.

Messages are in memory only. That is enough: the jobs are in the database, and after a restart all of them that are
not finished are published again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from typing import Any

import structlog
from celery import Celery
from fastapi import FastAPI

from bot.app import create_app
from bot.health import Check
from embedded.only_one import only_one
from service import database, leases
from service.settings import Settings
from worker.app import QUEUE_NAMES, make_app
from worker.job_context import Resources
from worker.periodic_tasks import periodic_tasks
from worker.scheduler import Scheduler

_log = structlog.get_logger(__name__)
_POLLING = 0.02  # seconds between two looks into memory; the default of a second would be felt


class Embedded:
    """The worker and the scheduler of a process that has no others. `start` brings the database up to date first."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.resources = Resources(settings)
        self.celery: Celery = make_app(settings, resources=self.resources, broker="memory://localhost/")
        self.celery.conf.update(
            broker_transport_options={"polling_interval": _POLLING}, worker_enable_remote_control=False
        )
        self._scheduler = Scheduler(periodic_tasks(self.resources, self.celery))
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)
        self._ready = threading.Event()
        self._controller: Any = None
        self._stopping = False
        self._lock = ExitStack()

    def start(self, seconds: float = 30.0) -> None:
        """Returns when the worker takes jobs. Raises RuntimeError when it does not within `seconds`.

        Raises DatabaseError when another process has the database.
        """
        self._lock = only_one(self.resources.engine)  # before anything is taken back
        database.upgrade(self.settings.database_url)
        again = leases.recover(self.resources.engine, datetime.now(timezone.utc))
        _log.info("embedded service starts", jobs_begun_again=again)
        # Without a default application the worker's thread would not find the task, and end without a word.
        self.resources.isolation.start()
        self.celery.finalize()
        self.celery.set_current()
        self.celery.set_default()
        self._thread.start()
        if not self._ready.wait(seconds) or not self.alive():
            raise RuntimeError("the worker did not start; the log says why")
        self._scheduler.start()

    def stop(self) -> None:
        """Finish the job that is being worked on, and take no other."""
        self._stopping = True
        self._scheduler.stop()
        if self._controller is not None:
            self._controller.stop()
        self._thread.join(30)
        self.resources.close()
        self._lock.close()

    def alive(self) -> bool:
        """Whether the worker's thread lives."""
        return self._thread.is_alive()

    def check(self) -> None:
        """For `/readyz`: raise RuntimeError unless jobs are worked on."""
        if not self.alive():
            raise RuntimeError("the thread of the worker has ended")
        if not self._scheduler.alive():
            raise RuntimeError("a thread of the scheduler has ended")

    def app(self) -> FastAPI:
        """The web application that fills this worker's inbox."""
        checks: Mapping[str, Check] = {"worker": self.check}
        return create_app(self.settings, engine=self.resources.engine, celery=self.celery, checks=checks)

    def _work(self) -> None:
        try:
            self._controller = self.celery.WorkController(
                pool="solo",
                concurrency=1,
                queues=list(QUEUE_NAMES),
                without_heartbeat=True,
                without_mingle=True,
                without_gossip=True,
                ready_callback=lambda _consumer: self._ready.set(),
            )
            self._controller.start()
        except Exception:
            _log.exception("the worker failed")
        finally:
            self._ready.set()
            if not self._stopping:
                _log.critical("the worker ended")
