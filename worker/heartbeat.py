"""A file whose time says that a process works: a liveness probe looks at its age.

A worker touches it with each heartbeat of Celery, so not while it has lost its broker: a probe is to wait for longer than the
longest job, or it would kill jobs that need no broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structlog
from celery.signals import heartbeat_sent

_log = structlog.get_logger(__name__)


def beat(path: Path | None) -> None:
    """Touch the file, where there is to be one. A failure is logged: the probe will notice."""
    if path is None:
        return
    try:
        path.touch()
    except OSError as error:
        _log.warning("the heartbeat file cannot be written", error=error.strerror)


def beat_with_celery(path: Path | None) -> None:
    """Touch the file whenever the worker of this process sends a heartbeat."""

    def send(**_: Any) -> None:
        beat(path)

    if path is not None:
        heartbeat_sent.connect(send, weak=False, dispatch_uid="ptopt-heartbeat")
