"""Somebody deleted a comment of ours."""

from __future__ import annotations

from feedback.signals import SignalKind
from feedback.signals.hidden import DELETED
from service.jobs import DeletedPayload
from worker import person_signal
from worker.job_context import JobContext


def handle(context: JobContext, payload: DeletedPayload) -> str:
    source = f"review-{payload.comment_id}"
    person_signal.record(
        context, [payload.comment_id], SignalKind.HIDDEN, DELETED, payload.actor, source=source
    )
    return ""
