"""`/ptopt pause`: no more reviews of this pull request."""

from __future__ import annotations

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.github.pullstate import PAUSE


def run(call: Call, _: None) -> Answer:
    if call.state.paused:
        return Answer("Reviews of this pull request are paused already. `/ptopt resume` ends the pause.")
    return Answer("Paused: this pull request is not reviewed until `/ptopt resume`.", (PAUSE,))


COMMAND: Command[None] = Command(
    name="pause",
    arguments="",
    summary="stop the reviews of this pull request",
    details="Pushes are not reviewed until `/ptopt resume`. Comments that are there stay, and commands are answered.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt pause", "be quiet while this is work in progress"),),
    parse=nothing,
    run=run,
)
