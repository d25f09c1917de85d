"""Somebody replied in a thread. That it happened is kept; what was said is not."""

from __future__ import annotations

from feedback.signals import SignalKind
from worker import people
from worker.work import Work


def handle(work: Work) -> str:
    payload, actor = work.job.payload, people.from_payload(work.job.payload["actor"])
    if not actor.is_bot:
        source = f"review-{payload['comment_id']}"
        people.record(work, [payload["in_reply_to"]], SignalKind.REPLY, "", actor, source=source)
    return ""
