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


def run(call: Call, full: bool) -> Answer:
    if not call.pull.open:
        raise UserError("The pull request is closed, so there is nothing to review.")
    return Answer(call.host.review(full))


COMMAND: Command[bool] = Command(
    name="review",
    arguments=_FULL.join("[]"),
    summary="review the head of the pull request now",
    details=(
        "A push starts a review by itself; this is for a draft, for a pause, or for when none came. `--full` looks at "
        "a head that was reviewed once more, and at all of the changed files, not only at what the pull request "
        "changed. Comments that were made are not repeated."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt review", "review what was pushed last"),
        ("/ptopt review --full", "look again, at all of the changed files"),
    ),
    parse=parse,
    run=run,
)
