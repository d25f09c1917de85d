"""Somebody replied in a thread. That it happened is kept; what was said is not."""

from __future__ import annotations

from feedback.signals import SignalKind
from worker import person_signal
from worker.job_context import JobContext


def handle(context: JobContext) -> str:
    payload, actor = context.job.payload, person_signal.from_payload(context.job.payload["actor"])
    if not actor.is_bot:
        source = f"review-{payload['comment_id']}"
        person_signal.record(context, [payload["in_reply_to"]], SignalKind.REPLY, "", actor, source=source)
    return ""
