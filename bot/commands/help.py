"""`/ptopt help`: what there is to ask for, from the table that the documentation is made of."""

from __future__ import annotations

from collections.abc import Sequence

from bot.commands.base import Answer, Call, Command, UsageError, Who, nearest, shown


def parse(words: Sequence[str]) -> str | None:
    """The command that is asked about, if one is."""
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
            "A command stands on a line of its own. The author of the pull request may give those marked *author*; "
            "else the role in the repository counts. `/ptopt help COMMAND` tells more."
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
    summary="list the commands, or tell about one",
    details="Without an argument, all commands in a table.",
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt help", "list the commands"), ("/ptopt help fix", "tell about `fix`")),
    parse=parse,
    run=run,
)
