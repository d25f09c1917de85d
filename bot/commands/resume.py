"""`/ptopt resume`: the end of a pause."""

from __future__ import annotations

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.github.pullstate import RESUME


def run(call: Call, _: None) -> Answer:
    if not call.state.paused:
        return Answer("Reviews of this pull request are not paused.")
    return Answer(
        "Resumed. The next push is reviewed; `/ptopt review` reviews the current head now.", (RESUME,)
    )


COMMAND: Command[None] = Command(
    name="resume",
    arguments="",
    summary="resume reviews of this pull request",
    details="Ends `/ptopt pause`. The next push is reviewed; `/ptopt review` reviews the current head.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt resume", "review pushes again"),),
    parse=nothing,
    run=run,
)
