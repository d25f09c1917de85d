"""`/ptopt help`: the commands, from the table that the documentation is made of."""

from __future__ import annotations

from collections.abc import Sequence

from bot.commands.base import Answer, Call, Command, UsageError, Who, nearest, shown


def parse(words: Sequence[str]) -> str | None:
    """The command to show, if one is named."""
    from bot.commands.registry import COMMANDS

    if not words:
        return None
    name = words[0].lower().removeprefix("/ptopt")
    if name not in COMMANDS or len(words) > 1:
        raise UsageError(f"There is no command {shown(' '.join(words))}.{nearest(name, COMMANDS)}")
    return name


def run(call: Call, name: str | None) -> Answer:
    from bot.commands.docs import table
    from bot.commands.registry import COMMANDS

    if name is None:
        notes = (
            "Put each command on a line of its own. The author of the pull request may use those marked *author*; "
            "otherwise the role in the repository decides. `/ptopt help COMMAND` shows the details."
        )
        return Answer(f"{table(COMMANDS.values())}\n\n{notes}")
    command = COMMANDS[name]
    examples = "\n".join(f"- `{example}`: {effect}" for example, effect in command.examples)
    return Answer(
        f"`{command.usage}`: {command.summary} ({command.who.value}).\n\n{command.details}\n\n{examples}"
    )


COMMAND: Command[str | None] = Command(
    name="help",
    arguments="[COMMAND]",
    summary="list the commands, or show one in detail",
    details="Without an argument, lists all commands.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt help", "list the commands"), ("/ptopt help fix", "show the details of `fix`")),
    parse=parse,
    run=run,
)
