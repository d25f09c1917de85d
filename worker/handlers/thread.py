"""Somebody resolved the thread of a comment of ours, or opened it again."""

from __future__ import annotations

from feedback.signals import SignalKind
from worker import person_signal
from worker.job_context import Work


def handle(work: Work) -> str:
    payload, actor = work.job.payload, person_signal.from_payload(work.job.payload["actor"])
    if actor.is_bot:
        return ""  # we, most likely: a thread whose finding is gone
    value = "resolved" if payload["resolved"] else "unresolved"
    ids, source = payload["comment_ids"], work.job.subject
    person_signal.record(work, ids, SignalKind.THREAD, value, actor, source=source)
    return ""
