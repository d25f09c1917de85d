"""Somebody resolved the thread of a comment of ours, or opened it again."""

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
        return ""  # we, most likely: a thread whose finding is gone
    who = signals.hashed(str(actor["id"]), hash_key(work.settings))
    value = "resolved" if payload["resolved"] else "unresolved"
    with writing(work.engine) as session:
        comment = signals.comment_of(session, job.repository_id, payload["comment_ids"])
        if comment is not None:
            now = datetime.now(timezone.utc)
            signals.record(session, comment, SignalKind.THREAD, value, actor=who, source=job.subject, now=now)
    return ""
