"""When the ranker and the adapter are trained again, and the process that does it: `python -m training retrain`.

It is a process of its own, as the service runs without the training side; what it did so far is in the database, so that
it may be killed at any time, and the next one goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from service import versions
from service.models import CommentRow, Repository, Retraining, Signal
from service.settings import Settings

TASK = "ptopt.retrain"
QUEUE = "training"
LOOK_EVERY = 300.0  # seconds
LONGEST = 7 * 24 * 3600  # seconds of one run; an adapter on a CPU takes hours
_SHOWN = 20  # lines of what a process that failed said
_TO_STOP = 20.0  # seconds that a process is given to end by itself
_ROOT = Path(__file__).parents[1]
_log = structlog.get_logger(__name__)


def due(session: Session, settings: Settings, now: datetime) -> str:
    """Why a retraining is to be started, or gone on with; "" when none is."""
    subjects = (versions.RANKER, *([versions.ADAPTER] if settings.retrain_adapter else []))
    for subject in subjects:
        open_ = _last(session, subject)
        if open_ is not None and open_.state == "running":
            abandoned = open_.lease_until is None or open_.lease_until < now
            return open_.reason if abandoned else ""
    last = _last(session, versions.RANKER)
    if any(versions.in_use(session, subject).canary for subject in versions.SUBJECTS):
        return ""  # one trial at a time
    since = last.created_at if last is not None else None
    answered, oldest = _answered(session, settings, since)
    if answered >= settings.retrain_labels:
        return f"{answered} comments were answered"
    start = since or oldest
    if answered and start is not None and now - start >= timedelta(days=settings.retrain_days):
        return f"{(now - start).days} days have passed"
    return ""


def _last(session: Session, subject: str) -> Retraining | None:
    runs = select(Retraining).where(Retraining.subject == subject).order_by(Retraining.id.desc())
    return session.scalars(runs.limit(1)).first()


def private_names(settings: Settings) -> list[str]:
    return [name for name in map(str.strip, settings.retrain_private.split(",")) if name]


def _answered(session: Session, settings: Settings, since: datetime | None) -> tuple[int, datetime | None]:
    """How many comments people answered since then, of repositories that are learned from; and the first answer."""
    found = (
        select(func.count(CommentRow.id.distinct()), func.min(Signal.created_at))
        .select_from(Signal)
        .join(CommentRow, CommentRow.id == Signal.comment_id)
        .join(Repository, Repository.id == CommentRow.repository_id)
        .where(Repository.learn.is_(True), _may_be_read(settings))
    )
    if since is not None:
        found = found.where(Signal.created_at > since)
    number, oldest = session.execute(found).one()
    return int(number), oldest


def _may_be_read(settings: Settings) -> ColumnElement[bool]:
    return or_(Repository.private.is_(False), Repository.full_name.in_(private_names(settings)))


class RetrainingProcess:
    """Runs `python -m training retrain` and waits for it; `stop` ends it from another thread.

    `wait`: seconds that it waits for another process that works on it.
    """

    def __init__(self, settings: Settings, *, wait: float = 0.0) -> None:
        self._settings = settings
        self._wait = wait
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, reason: str) -> int:
        """The exit status; 0 also where another process works on it."""
        settings = self._settings
        command = [sys.executable, "-m", "training", "retrain", "--reason", reason]
        command += ["--wait", str(self._wait), "--folder", str(settings.retrain_folder.resolve())]
        command += [word for name in private_names(settings) for word in ("--private", name)]
        if settings.retrain_adapter and settings.retrain_clones and settings.model_registry:
            command += [
                "--adapter",
                settings.retrain_adapter,
                "--clones",
                str(settings.retrain_clones.resolve()),
            ]
            command += ["--registry", str(settings.model_registry.resolve())]
        # In the environment, where no list of processes shows the password.
        environment = {**os.environ, "PTOPT_DATABASE_URL": settings.database_url}
        with self._lock:
            if self._stopped:
                return 0
            process = self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        with process:
            assert process.stdout is not None  # noqa: S101 (it is a pipe)
            last = deque((line.rstrip() for line in process.stdout), maxlen=_SHOWN)
            code = process.wait()
        if code and not self._stopped:
            _log.error("the retraining failed", exit_code=code, output="\n".join(last))
        else:
            _log.info("the retraining ended", exit_code=code, output=last[-1] if last else "")
        return code

    def stop(self, seconds: float = _TO_STOP) -> None:
        """End it, at the latest after `seconds`; another process goes on with it later."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
