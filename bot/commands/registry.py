"""All slash commands. The help, the documentation and the permission check are made of this table."""

from __future__ import annotations

from typing import Any, Protocol

from bot.commands import config, explain, feedback, fix, ignore, pause, resume, review, status
from bot.commands import help as help_
from bot.commands.base import Command

COMMANDS: dict[str, Command[Any, Any]] = {
    module.COMMAND.name: module.COMMAND
    for module in (help_, review, explain, fix, ignore, pause, resume, status, feedback, config)
}


class GitHub(explain.GitHub, fix.GitHub, ignore.GitHub, status.GitHub, Protocol):
    """What the commands need of GitHub, together."""
