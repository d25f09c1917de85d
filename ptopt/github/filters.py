"""Which pull requests are reviewed at all: the `[pull-requests]` table of the base branch, and the operator's limits."""

from __future__ import annotations

from dataclasses import dataclass

from ptopt.config import Config
from ptopt.github.values import PullRequest

CLOSED = "the pull request is closed"
WRITERS = frozenset({"admin", "maintain", "write"})


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest pull request that an operator has reviewed, whatever the repository sets.

    Those of people without write access are smaller: anybody may open one.
    """

    files: int
    lines: int
    stranger_files: int
    stranger_lines: int

    def of_strangers(self, pull: PullRequest) -> bool:
        """Whether it is too large unless its author may write to the repository."""
        return pull.changed_files > self.stranger_files or pull.changed_lines > self.stranger_lines

    def why_skipped(self, pull: PullRequest, author_writes: bool) -> str | None:
        """None: it is reviewed; else the reason, as of `why_skipped`."""
        files, lines, of = self.files, self.lines, ""
        if not author_writes:
            files, lines = min(files, self.stranger_files), min(lines, self.stranger_lines)
            of = " of people without write access"
        for number, what, most in (
            (pull.changed_files, "files", files),
            (pull.changed_lines, "lines", lines),
        ):
            if number > most:
                return f"it changes {number:,} {what}, more than the {most:,} that this service reviews{of}"
        return None


def why_skipped(pull: PullRequest, config: Config, *, requested: bool = False) -> str | None:
    """None: it is reviewed; else the reason, in a text that holds nothing of the pull request.

    With `requested` by a person, drafts are reviewed too, and whatever the author and the labels are.
    """
    settings = config.pull_requests
    if not pull.open:
        return CLOSED
    if not settings.enabled:
        return "reviews are switched off (`pull-requests.enabled`)"
    if pull.changed_files > settings.max_files:
        return _above(pull.changed_files, "files", "max-files", settings.max_files)
    if pull.changed_lines > settings.max_lines:
        return _above(pull.changed_lines, "lines", "max-lines", settings.max_lines)
    if requested:
        return None
    if pull.draft and not settings.drafts:
        return "it is a draft (`pull-requests.drafts`)"
    if pull.author.is_bot and not settings.bots:
        return "a bot opened it (`pull-requests.bots`)"
    if pull.author.login.casefold() in {login.casefold() for login in settings.skip_authors}:
        return "its author is listed in `pull-requests.skip-authors`"
    unwanted = {label.casefold() for label in settings.skip_labels}
    if not unwanted.isdisjoint(label.casefold() for label in pull.labels):
        return "it has a label listed in `pull-requests.skip-labels`"
    return None


def _above(number: int, what: str, key: str, limit: int) -> str:
    return f"it changes {number:,} {what}, more than the {limit:,} of `pull-requests.{key}`"
