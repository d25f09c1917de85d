"""Somebody wrote in the conversation of a pull request: a slash command?"""

from __future__ import annotations

from bot.events import Delivery, on
from bot.events.pull_request_review_comment import command
from bot.payloads import IssueCommentEvent
from service.jobs import NewJob


@on("issue_comment", "created", "edited")
def commented(event: IssueCommentEvent, delivery: Delivery) -> list[NewJob]:
    if event.issue.pull_request is None:
        return []
    return command(event, "issue", event.issue.number)
