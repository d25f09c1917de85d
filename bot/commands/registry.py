"""All slash commands. The help, the documentation and the permission check are made of this table."""

from __future__ import annotations

from typing import Any

from bot.commands import audit, config, explain, feedback, fix, ignore, pause, resume, review, status
from bot.commands import help as help_
from bot.commands.base import Command

COMMANDS: dict[str, Command[Any]] = {
    module.COMMAND.name: module.COMMAND
    for module in (help_, review, explain, fix, ignore, pause, resume, status, feedback, config, audit)
}
