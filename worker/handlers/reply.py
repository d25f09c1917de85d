"""Somebody replied in a thread. What kind of reply it was is stored; the text is not."""

from __future__ import annotations

from feedback.signals import SignalKind
from service.jobs import ReplyPayload
from worker import person_signal
from worker.job_context import JobContext


def handle(context: JobContext, payload: ReplyPayload) -> str:
    if not payload.actor.is_bot:
        source = f"review-{payload.comment_id}"
        person_signal.record(
            context, [payload.in_reply_to], SignalKind.REPLY, payload.says, payload.actor, source=source
        )
    return ""
