"""The configuration of the base branch, for the commands that need it."""

from __future__ import annotations

from bot.commands.base import UserError
from ptopt.config import Config, ConfigError
from ptopt.github.config_of import Files, base_config
from ptopt.github.values import PullRequest
from ptopt.report.text import markdown_text


def settings_of(github: Files, pull: PullRequest) -> Config:
    """What is in force. A configuration with errors is the person's matter: `UserError` lists them."""
    try:
        return base_config(github, pull)
    except ConfigError as error:
        problems = "\n".join(f"- {markdown_text(problem)}" for problem in error.problems[:20])
        raise UserError(
            f"The configuration of the base branch has errors, so nothing is reviewed:\n\n{problems}"
        ) from None
