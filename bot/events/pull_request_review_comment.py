"""Somebody wrote in a review thread: a slash command, or an answer to one of our comments? Or a comment was deleted.

The text is looked at once, cheaply: `bot.commands` parses a command, in the worker; of an answer, only what kind it is goes
further. Whose comment was answered or deleted is for the worker to find out, too.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from bot.events import Delivery, job, on
from bot.payloads import CommentEvent, ReviewCommentEvent
from feedback.signals.replies import classify
from service.jobs import CommandPayload, DeletedPayload, Kind, NewJob, ReplyPayload

_MAY_HOLD_COMMAND = re.compile(r"^[ \t]*/ptopt(?![\w-])", re.MULTILINE | re.IGNORECASE)


@on("pull_request_review_comment", "created")
def commented(event: ReviewCommentEvent, delivery: Delivery) -> list[NewJob]:
    return command(event, "review", event.pull_request.number) or _reply(event)


@on("pull_request_review_comment", "edited")
def edited(event: ReviewCommentEvent, delivery: Delivery) -> list[NewJob]:
    return command(event, "review", event.pull_request.number)


@on("pull_request_review_comment", "deleted")
def deleted(event: ReviewCommentEvent, delivery: Delivery) -> list[NewJob]:
    """Ours is by a bot, and the first of its thread; we delete none ourselves."""
    comment = event.comment
    if comment.in_reply_to_id is not None or comment.user is None or not comment.user.is_bot:
        return []
    if event.actor.is_bot:
        return []
    payload = DeletedPayload(comment.id, event.actor.as_actor())
    return [job(event, Kind.DELETED, event.pull_request.number, subject=str(comment.id), payload=payload)]


def command(event: CommentEvent, where: Literal["issue", "review"], pull: int) -> list[NewJob]:
    """The job for a comment that may hold a slash command.

    Bots, ourselves among them, give none; nor does who edits the comment of somebody else: what the author hid in it
    would run with the editor's permission.
    """
    if event.actor.is_bot or not event.is_by_author or not _MAY_HOLD_COMMAND.search(event.body):
        return []
    if event.action == "edited" and event.previous_body is None:
        return []  # something else than the text was edited
    comment = event.comment
    payload = CommandPayload(
        where=where,
        comment_id=comment.id,
        in_reply_to=comment.in_reply_to_id,
        body=event.body,
        previous_body=event.previous_body if event.action == "edited" else None,
        actor=event.actor.as_actor(),
    )
    # GitHub does not number the edits, but says when the last one was.
    edit = 0 if event.action == "created" else _seconds(comment.updated_at)
    return [job(event, Kind.COMMAND, pull, subject=f"{where}-{comment.id}-{edit}", payload=payload)]


def _reply(event: ReviewCommentEvent) -> list[NewJob]:
    comment = event.comment
    if comment.in_reply_to_id is None or event.actor.is_bot:
        return []
    says = classify(event.body).value
    payload = ReplyPayload(comment.id, comment.in_reply_to_id, event.actor.as_actor(), says)
    return [job(event, Kind.REPLY, event.pull_request.number, subject=str(comment.id), payload=payload)]


def _seconds(time: datetime) -> int:
    return int(time.timestamp())
