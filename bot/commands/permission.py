"""Who may give which command. GitHub decides; what a comment says of its author is not trusted."""

from __future__ import annotations

from dataclasses import dataclass

from bot.commands.base import Who
from ptopt.github.client import GitHubClient
from ptopt.github.values import Actor, PullRequest

_WRITE = frozenset({"admin", "maintain", "write"})
_TRIAGE = _WRITE | {"triage"}


@dataclass(frozen=True, slots=True)
class Standing:
    """What a person is to a pull request."""

    role: str
    author: bool

    @property
    def known(self) -> bool:
        """Somebody who is answered. Everybody else gets a reaction at most: a public repository is open to all."""
        return self.may(Who.AUTHOR_OR_TRIAGE)

    def may(self, who: Who) -> bool:
        if who is Who.WRITE:
            return self.role in _WRITE
        return self.author or self.role in _TRIAGE


def standing(github: GitHubClient, pull: PullRequest, actor: Actor) -> Standing:
    return Standing(
        github.permission(pull.repo, actor.login), author=actor.id != 0 and actor.id == pull.author.id
    )
