"""Somebody resolved the thread of a comment of ours, or opened it again."""

from __future__ import annotations

from feedback.signals import SignalKind
from worker import person_signal
from worker.job_context import JobContext


def handle(context: JobContext) -> str:
    payload, actor = context.job.payload, person_signal.from_payload(context.job.payload["actor"])
    if actor.is_bot:
        return ""  # we, most likely: a thread whose finding is gone
    value = "resolved" if payload["resolved"] else "unresolved"
    ids, source = payload["comment_ids"], context.job.subject
    person_signal.record(context, ids, SignalKind.THREAD, value, actor, source=source)
    return ""
