"""`python -m worker.scheduler` runs the periodic tasks, each in a thread of its own. Run one; two do no harm.

They run here and not as Celery tasks: what finds lost messages must not depend on messages.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import click
import structlog
from sqlalchemy.exc import SQLAlchemyError

from service import allocator, database, logs
from service.environment import read_settings
from worker.app import make_app
from worker.heartbeat import beat
from worker.job_context import Resources
from worker.periodic_tasks import PeriodicTask, periodic_tasks

_log = structlog.get_logger(__name__)


class Scheduler:
    """Threads that run periodic tasks until `stop`. A task that fails is logged and runs again at its next time."""

    def __init__(self, tasks: Sequence[PeriodicTask], *, heartbeat_file: Path | None = None) -> None:
        self._heartbeat_file = heartbeat_file
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(task,), name=f"scheduler-{task.name}", daemon=True)
            for task in tasks
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Let them finish what they are doing, for so long."""
        self._stop.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        self._stop.wait()

    def _repeat(self, task: PeriodicTask) -> None:
        while True:
            try:
                task.run(datetime.now(timezone.utc))
            except Exception:
                _log.exception("periodic task failed", task=task.name)
            beat(self._heartbeat_file)
            if self._stop.wait(task.every):
                return


@click.command(help=__doc__)
def main() -> None:
    allocator.return_freed_memory()
    settings = read_settings()
    logs.configure(settings.log_level, settings.log_format)
    resources = Resources(settings)
    try:
        database.check(resources.engine)
    except database.DatabaseError as error:
        raise click.ClickException(f"PTOPT_DATABASE_URL: {error}") from None
    except SQLAlchemyError as error:  # it may come up later
        _log.warning("the database cannot be reached", error=str(error))
    tasks = periodic_tasks(resources, make_app(settings, resources=resources))
    scheduler = Scheduler(tasks, heartbeat_file=settings.heartbeat_file)
    scheduler.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: scheduler.stop(0))
    scheduler.wait()
    scheduler.stop()


if __name__ == "__main__":
    main(prog_name="python -m worker.scheduler")
