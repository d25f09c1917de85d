"""`/ptopt pause`: no more reviews of this pull request."""

from __future__ import annotations

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.github.pullstate import PAUSE


def run(call: Call, _: None) -> Answer:
    if call.state.paused:
        return Answer("Reviews of this pull request are already paused. `/ptopt resume` resumes them.")
    return Answer("Paused. Pushes to this pull request are not reviewed until `/ptopt resume`.", (PAUSE,))


COMMAND: Command[None] = Command(
    name="pause",
    arguments="",
    summary="pause reviews of this pull request",
    details="Pushes are not reviewed until `/ptopt resume`. Existing comments stay, and commands are still answered.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt pause", "no reviews while this is work in progress"),),
    parse=nothing,
    run=run,
)
