"""Somebody resolved the thread of a comment of ours, or opened it again."""

from __future__ import annotations

from feedback.signals import SignalKind
from service.jobs import ThreadPayload
from worker import person_signal
from worker.job_context import JobContext


def handle(context: JobContext, payload: ThreadPayload) -> str:
    if payload.actor.is_bot:
        return ""  # we, most likely: a thread whose finding is gone
    value = "resolved" if payload.resolved else "unresolved"
    source = context.job.subject
    person_signal.record(context, payload.comment_ids, SignalKind.THREAD, value, payload.actor, source=source)
    return ""
