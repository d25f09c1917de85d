"""A pull request was closed: record which suggestions were merged and which comments were left open, and poll some days more."""

from __future__ import annotations

from datetime import datetime, timezone

from feedback import signals
from feedback.signals import SignalKind
from feedback.signals.closed import left_open
from ptopt.github.values import PullResponses
from service.database import reading, writing
from service.jobs import NoPayload
from worker import applied_suggestions, polled_pulls
from worker.job_context import JobContext, RetryLater

_LAG = 10.0  # seconds that GitHub's API may be behind its webhooks
_LAG_TRIES = 3


def handle(context: JobContext, payload: NoPayload) -> str:
    job = context.job
    with reading(context.engine) as session:
        if not signals.comments_of(session, job.repository_id, job.pull):
            return ""
    pull = context.github.responses(job.repository, job.pull)
    if not pull.open:
        settle(context, pull)
    elif job.deferrals < _LAG_TRIES:
        raise RetryLater(_LAG, "GitHub shows it open, or somebody opened it again")
    return ""


def settle(context: JobContext, pull: PullResponses) -> None:
    """Record what was applied, merged and left open; doing it twice changes nothing."""
    job = context.job
    applied_suggestions.note(context, pull.head_sha, closed=True, merged=pull.merged)
    value, ids = left_open(pull)
    now = datetime.now(timezone.utc)
    with writing(context.engine) as session:
        for comment in signals.comments_of(session, job.repository_id, job.pull):
            if comment.github_id in ids:
                signals.record(
                    session, comment, SignalKind.CLOSED, value, actor="", source=pull.head_sha, now=now
                )
        polled_pulls.close(session, job, now)
