"""A pull request was closed: what was merged of what we suggested, and how long reactions are asked for."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import update

from feedback.database import writing
from feedback.models import PolledPull
from feedback.signals import SignalKind
from worker import uptake
from worker.work import Work


def handle(work: Work) -> str:
    job = work.job
    pull = work.github.pull(job.repository, job.pull)
    uptake.note(work, pull.head_sha, SignalKind.APPLIED)
    if pull.merged:
        uptake.note(work, pull.head_sha, SignalKind.MERGED)
    if not pull.open:
        now = datetime.now(timezone.utc)
        polled = update(PolledPull).where(PolledPull.repository_id == job.repository_id)
        with writing(work.engine) as session:
            session.execute(polled.where(PolledPull.pull == job.pull).values(closed_at=now, next_poll_at=now))
    return ""
