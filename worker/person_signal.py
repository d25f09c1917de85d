"""Records what one person did about a comment of ours: a hash of who it was, and whether the person may write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from feedback import signals
from feedback.signals import SignalKind
from ptopt.github.errors import ForbiddenError
from ptopt.github.values import Actor
from service.database import reading, writing
from worker import polled_pulls
from worker.job_context import JobContext
from worker.review_records import hash_key

_WRITERS = ("admin", "maintain", "write")


def record(
    context: JobContext,
    comment_ids: Sequence[int],
    kind: SignalKind,
    value: str,
    actor: Actor,
    *,
    source: str,
    note: str = "",
) -> None:
    """Record the signal about our comment among these review comments, where there is one that we know of.

    Its pull request is polled often again.
    """
    repository_id = context.job.repository_id
    with reading(context.engine) as session:
        if signals.comment_of(session, repository_id, comment_ids) is None:
            return
    writes = may_write(context, actor)  # outside of a transaction: a request takes long
    with writing(context.engine) as session:
        comment = signals.comment_of(session, repository_id, comment_ids)
        if comment is not None:
            now = datetime.now(timezone.utc)
            signals.record(
                session,
                comment,
                kind,
                value,
                actor=hashed(context, actor),
                actor_writes=writes,
                source=source,
                now=now,
                note=note,
            )
            polled_pulls.active(session, context.job, context.settings, now)


def hashed(context: JobContext, actor: Actor) -> str:
    return signals.hashed(str(actor.id), hash_key(context.settings))


def may_write(context: JobContext, actor: Actor) -> bool | None:
    """Whether the person may write to the repository; None where GitHub does not say."""
    try:
        return context.github.permission(context.job.repository, actor.login) in _WRITERS
    except (ForbiddenError, ValueError):  # ValueError: GitHub's name for nobody is no login
        return None
