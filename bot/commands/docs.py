"""The commands as a table, and as a page: `python -m bot.commands --docs docs/commands.md`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bot.commands.base import Command
from bot.commands.parse import MOST_COMMANDS

_INTRODUCTION = f"""\
A command is a line of a comment that begins with `/ptopt`: in the conversation of a pull request, or in a review
thread. Quotes and code are not read. Up to {MOST_COMMANDS} commands of one comment are run, in order, and answered
together. When its author edits a comment, those that are new are run; an edit by somebody else runs nothing.

ptopt looks at the comment (:eyes:) and answers once. A confused face (:confused:) means that it does not obey:

- *author* is the author of the pull request; *triage* and *write* are roles in the repository, as GitHub tells them,
  and every higher role has them too. Others get no answer, so that strangers cannot make it talk.
- Whoever gives very many commands in an hour has to wait.

What `ignore`, `pause` and `resume` do is kept in the answer itself: delete the answer to undo it. Nothing in a comment
changes the configuration."""


def table(commands: Iterable[Command[Any]]) -> str:
    lines = ["| command | what it does | who |", "| --- | --- | --- |"]
    for command in commands:
        usage = command.usage.replace("|", "\\|")
        lines.append(f"| `{usage}` | {command.summary} | {command.who.value} |")
    return "\n".join(lines)


def page(commands: Iterable[Command[Any]]) -> str:
    commands = list(commands)
    parts = ["# Slash commands", "Written by `make docs`.", _INTRODUCTION, table(commands)]
    for command in commands:
        examples = [f"- `{example}`: {effect}" for example, effect in command.examples]
        parts += [f"## {command.name}", f"`{command.usage}`", command.details, "\n".join(examples)]
    return "\n\n".join(parts) + "\n"
