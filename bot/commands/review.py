"""`/ptopt review`: look at the pull request now."""

from __future__ import annotations

from collections.abc import Sequence

from bot.commands.base import Answer, Call, Command, UsageError, UserError, Who, nearest, shown

_FULL = "--full"


def parse(words: Sequence[str]) -> bool:
    """Is it to be a full review?"""
    for word in words:
        if word.lower() != _FULL:
            raise UsageError(f"{shown(word)} is not an option.{nearest(word, [_FULL])}")
    return bool(words)


def run(call: Call[object], full: bool) -> Answer:
    if not call.pull.open:
        raise UserError("The pull request is closed, so there is nothing to review.")
    return Answer(call.host.review(full))


COMMAND: Command[bool, object] = Command(
    name="review",
    arguments=_FULL.join("[]"),
    summary="review the head of the pull request now",
    details=(
        "A push starts a review by itself; this is for a draft, for a pause, or for when none came. With `--full` the "
        "answer also lists what ptopt finds in the changed files where the pull request changed nothing. Comments that "
        "were made are not repeated."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt review", "review what was pushed last"),
        ("/ptopt review --full", "and list what else there is in the changed files"),
    ),
    parse=parse,
    run=run,
)
