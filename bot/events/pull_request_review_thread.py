"""Somebody resolved a review thread, or took that back."""

from __future__ import annotations

from bot.events import Delivery, job, on
from bot.payloads import ReviewThreadEvent
from service.jobs import Kind, NewJob, ThreadPayload

_MAX_COMMENTS = 100  # ours is the first of its thread


@on("pull_request_review_thread", "resolved", "unresolved")
def resolved(event: ReviewThreadEvent, delivery: Delivery) -> list[NewJob]:
    if event.actor.is_bot:  # we resolve threads ourselves: nobody's opinion
        return []
    payload = ThreadPayload(
        comment_ids=[comment.id for comment in event.thread.comments[:_MAX_COMMENTS]],
        resolved=event.action == "resolved",
        actor=event.actor.as_actor(),
    )
    return [job(event, Kind.THREAD, event.pull_request.number, subject=delivery.digest(), payload=payload)]
