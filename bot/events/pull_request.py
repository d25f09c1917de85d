"""A pull request is opened or pushed to: it is to be reviewed. It is closed: we look at what became of our comments.

Whether drafts, labels or authors are left out is for the configuration of the base branch to say, and for the worker
to read.
"""

from __future__ import annotations

from bot.events import Delivery, job, on
from bot.payloads import PullRequestEvent
from service.jobs import Kind, NewJob

_SETTLE = 0.5  # seconds: GitHub's API may know a little later than its webhooks what happened


@on("pull_request", "opened")
def opened(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]:
    return [_review(event, delay=min(_SETTLE, delivery.debounce))]


@on("pull_request", "reopened", "ready_for_review")
def reopened(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]:
    # The head may be one that was skipped as a draft, or while closed: the subject makes this another job. A head that
    # was reviewed is not reviewed twice, the worker sees to that.
    return [_review(event, subject=event.action, delay=min(_SETTLE, delivery.debounce))]


@on("pull_request", "synchronize")
def pushed(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]:
    return [_review(event, delay=delivery.debounce)]


@on("pull_request", "closed")
def closed(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]:
    pull = event.pull_request
    # It may be closed, opened again and merged, all with the same head.
    subject = "merged" if pull.merged else ""
    return [job(event, Kind.CLOSED, pull.number, head_sha=pull.head.sha, subject=subject)]


def _review(event: PullRequestEvent, *, subject: str = "", delay: float) -> NewJob:
    pull = event.pull_request
    return job(
        event,
        Kind.REVIEW,
        pull.number,
        head_sha=pull.head.sha,
        subject=subject,
        delay=delay,
    )
