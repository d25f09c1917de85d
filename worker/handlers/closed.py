"""A pull request was closed: record which suggestions were merged, and poll reactions for some days more."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import update

from feedback.signals import SignalKind
from ptopt.github.values import PullRequest
from service.database import writing
from service.jobs import NoPayload
from service.models import PolledPull
from worker import applied_suggestions
from worker.job_context import JobContext, RetryLater

_LAG = 10.0  # seconds that GitHub's API may be behind its webhooks
_LAG_TRIES = 3


def handle(context: JobContext, payload: NoPayload) -> str:
    job = context.job
    pull = context.github.pull(job.repository, job.pull)
    if not pull.open:
        settle(context, pull)
    elif job.deferrals < _LAG_TRIES:
        raise RetryLater(_LAG, "GitHub shows it open, or somebody opened it again")
    return ""


def settle(context: JobContext, pull: PullRequest) -> None:
    """Record what was applied and merged, and end the polling; doing it twice changes nothing."""
    merged = [SignalKind.MERGED] if pull.merged else []
    applied_suggestions.note(context, pull.head_sha, [SignalKind.APPLIED, *merged])
    end_polling(context)


def end_polling(context: JobContext) -> None:
    """Poll reactions for some days more, and then no longer."""
    now = datetime.now(timezone.utc)
    polled = update(PolledPull).where(PolledPull.repository_id == context.job.repository_id)
    polled = polled.where(PolledPull.pull == context.job.pull, PolledPull.closed_at.is_(None))
    with writing(context.engine) as session:
        session.execute(polled.values(closed_at=now, next_poll_at=now))
