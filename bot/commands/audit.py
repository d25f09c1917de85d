"""`/ptopt audit`: audit the training scripts of the repository."""

from __future__ import annotations

from bot.commands.base import Answer, Call, Command, Who, nothing


def run(call: Call, _: None) -> Answer:
    return Answer(call.host.audit())


COMMAND: Command[None] = Command(
    name="audit",
    arguments="",
    summary="audit the training scripts of the whole repository, once a day",
    details=(
        "The base commit of the pull request is read, not its changes: which scripts train and with what, what is missing, what is "
        "good, and a plan. The audit is a comment of its own. In the Action, `mode: audit` does the same."
    ),
    who=Who.WRITE,
    examples=(("/ptopt audit", "audit the base branch"),),
    parse=nothing,
    run=run,
)
