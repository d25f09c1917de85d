"""Renews the lease of a job while it is worked on."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from types import TracebackType

import structlog
from sqlalchemy import Engine

from ptopt.github.errors import SupersededError
from service import leases
from service.leases import Claim

_log = structlog.get_logger(__name__)


class LeaseRenewal:
    """Renews the lease of a job in a thread, three times in its length, until the block ends."""

    def __init__(self, engine: Engine, job: Claim, lease: float) -> None:
        self._engine = engine
        self._job = job
        self._lease = lease
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{job.id}", daemon=True)

    def __enter__(self) -> LeaseRenewal:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise SupersededError unless the job is ours and wanted. For the length of a lease nobody else gets it."""
        if not leases.renew(self._engine, self._job, datetime.now(timezone.utc), lease=self._lease):
            raise SupersededError("the lease was lost: another worker has the job, or it was taken back")
        if leases.is_stale(self._engine, self._job):
            raise SupersededError("superseded by a newer push")

    def _renew(self) -> None:
        while not self._over.wait(self._lease / 3):
            try:
                if not leases.renew(self._engine, self._job, datetime.now(timezone.utc), lease=self._lease):
                    return  # `check` and the last update will see it, too
            except Exception:
                _log.warning("lease not renewed", job=self._job.id, exc_info=True)
