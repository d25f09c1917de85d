"""The Celery application: a task that runs a job by its id, and one that trains the ranker again.

Messages only say "look at this job". They may come twice, late, or never: the job row decides.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any

import structlog
from celery import Celery
from celery.signals import setup_logging, worker_shutting_down

from service import logs
from service.broker import KEY_PREFIX
from service.dispatch import TASK, publish_due
from service.settings import Settings
from worker import retraining
from worker.heartbeat import beat_with_celery
from worker.job_context import Resources
from worker.run_job import execute

_log = structlog.get_logger(__name__)
_SOFT_LIMIT = 600  # seconds; the job may still say what went wrong
_HARD_LIMIT = 660
QUEUE_NAMES = ("review", "command", "feedback", "training")


def make_app(settings: Settings, *, resources: Resources | None = None, broker: str | None = None) -> Celery:
    """An application for these settings, with the task registered. `broker` replaces that of the settings."""
    app = Celery("ptopt", broker=broker or settings.broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue="review",
        task_queues={name: {"exchange": name, "routing_key": name} for name in QUEUE_NAMES},
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        result_backend=None,
        task_soft_time_limit=_SOFT_LIMIT,
        task_time_limit=_HARD_LIMIT,
        worker_prefetch_multiplier=1,
        worker_proc_alive_timeout=600,  # a child that loads a model takes its time
        worker_soft_shutdown_timeout=30,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        # Shorter than the hard limit, a long task would be started a second time while it runs. The short sweep
        # of unacknowledged messages makes a restart after a crash quick.
        broker_transport_options={
            "global_keyprefix": KEY_PREFIX,
            "visibility_timeout": 900,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 30,
            "socket_connect_timeout": 10,
        },
    )
    if settings.model_server is not None or not (settings.model or settings.model_registry):
        # A review waits for GitHub most of its time, and is analysed in a child. A model in the worker is shared badly.
        app.conf.update(worker_pool="threads", worker_concurrency=settings.reviews_at_once)
    shared = resources or Resources(settings)

    def run(job_id: int) -> None:
        execute(shared, job_id)
        try:  # another job of the installation may have waited for the end of this one
            publish_due(shared.engine, app, datetime.now(timezone.utc), settings.jobs_per_installation)
        except Exception:
            _log.warning("jobs not published; the scheduler will do it", exc_info=True)

    def retrain(reason: str) -> None:
        shared.retraining.run(reason)

    app.task(name=TASK, shared=False)(run)  # another application of this process has its own
    # Acknowledged at its start: it outlasts any time-out of a broker. The scheduler looks after one that broke off.
    app.task(
        name=retraining.TASK,
        shared=False,
        acks_late=False,
        soft_time_limit=retraining.LONGEST,
        time_limit=retraining.LONGEST,
    )(retrain)

    def shut_down(**_: Any) -> None:
        if "retraining" in shared.__dict__:
            shared.retraining.stop()

    worker_shutting_down.connect(shut_down, weak=False, dispatch_uid=f"ptopt-{id(app)}")

    def configure(**_: Any) -> None:
        logs.configure(settings.log_level, settings.log_format)

    for name in ("celery.worker.strategy", "celery.app.trace"):  # we log each job ourselves
        logging.getLogger(name).setLevel(logging.WARNING)
    beat_with_celery(settings.heartbeat_file)
    # A receiver keeps Celery from setting up logging itself.
    setup_logging.connect(configure, weak=False, dispatch_uid="ptopt")
    return app
