"""The configuration of the base branch, for the commands that need it."""

from __future__ import annotations

from collections.abc import Sequence

from ptopt.config import Config, ConfigError
from ptopt.github.config_of import Files, base_config
from ptopt.github.values import PullRequest
from ptopt.report.text import markdown_text

_LISTED = 20


def settings_of(github: Files, pull: PullRequest) -> tuple[Config, tuple[str, ...]]:
    """What is in force, as in a review: the defaults where the configuration has the errors that come with them."""
    try:
        return base_config(github, pull), ()
    except ConfigError as error:
        return Config(), error.problems


def listed(problems: Sequence[str], indent: str = "") -> str:
    """Problems as a list in Markdown."""
    more = [f"and {len(problems) - _LISTED:,} more"] if len(problems) > _LISTED else []
    shown = [*map(markdown_text, problems[:_LISTED]), *more]
    return "\n".join(f"{indent}- {problem}" for problem in shown)
