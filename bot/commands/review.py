"""`/ptopt review`: review the pull request now."""

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
        "Each push is reviewed automatically; use this for a draft, during a pause, or when no review came. `--full` "
        "reviews a head again, and names in a comment of its own what is found on lines of the changed files that "
        "the pull request left as they were. Findings that were already reported are not repeated."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(
        ("/ptopt review", "review the current head"),
        ("/ptopt review --full", "review again, old lines of the changed files included"),
    ),
    parse=parse,
    run=run,
)
