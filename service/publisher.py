"""The thread that hands due jobs to Celery: at once when a delivery brings one, and at least twice a second."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

_IDLE_SECONDS = 0.5
_GAP_SECONDS = 0.02  # at least between two looks into the database: under load many commits wake us
_MAX_PAUSE = 10.0  # after failures, which the scheduler repairs
_log = structlog.get_logger(__name__)


class Publisher:
    """Calls `publish` until `stop`. A failure is logged, and tried again after a pause."""

    def __init__(self, publish: Callable[[], object]) -> None:
        self._publish = publish
        self._work = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
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
