"""Somebody replied in a thread. That it happened is kept; what was said is not."""

from __future__ import annotations

from datetime import datetime, timezone

from feedback import signals
from feedback.database import writing
from feedback.signals import SignalKind
from worker.records import hash_key
from worker.work import Work


def handle(work: Work) -> str:
    payload, job = work.job.payload, work.job
    actor = payload["actor"]
    if actor["is_bot"]:
        return ""
    who = signals.hashed(str(actor["id"]), hash_key(work.settings))
    with writing(work.engine) as session:
        comment = signals.comment_of(session, job.repository_id, [payload["in_reply_to"]])
        if comment is not None:
            source, now = f"review-{payload['comment_id']}", datetime.now(timezone.utc)
            signals.record(session, comment, SignalKind.REPLY, "", actor=who, source=source, now=now)
    return ""
