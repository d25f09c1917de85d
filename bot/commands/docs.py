"""The commands as a table, and as a page: `python -m bot.commands --docs docs/commands.md`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bot.commands.base import Command
from bot.commands.parse import MOST_COMMANDS

_INTRODUCTION = f"""\
A command is a line of a comment that begins with `/ptopt`: in the conversation of a pull request, or in a review
thread. Quotes and code are not read. Up to {MOST_COMMANDS} commands of one comment are run, in order, and answered
together. When its author edits a comment, commands that are new in it are run; edits by other people run nothing.

ptopt reacts to the comment with :eyes: and answers once. A :confused: reaction means that the command was refused:

- for lack of permission: *author* is the author of the pull request; *triage* and *write* are repository roles, and higher
  roles include them. People without a role get no answer.
- for too many commands within an hour.

The effect of `ignore`, `pause` and `resume` is stored in the answer itself: delete the answer to undo it. Commands cannot
change the configuration."""


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
