"""One comment on settings that cannot be used: those that the pull request brings, and those it is reviewed with.

It is edited as the problems change, and never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptopt.github import markers, sticky
from ptopt.github.client import GitHubClient
from ptopt.github.values import IssueComment, PullRequest
from ptopt.report.text import markdown_text

_MOST = 20  # problems listed of each kind
_VALID_AGAIN = "The settings of ptopt can be read again. Thank you."


def update(
    github: GitHubClient,
    pull: PullRequest,
    comments: Iterable[IssueComment],
    *,
    base: Sequence[str],
    head: Sequence[str],
    before_write: Callable[[], None],
) -> None:
    """Bring the comment to where it should be; `comments` are all of the conversation.

    `base` are the problems of the settings in force, `head` those of the settings that the pull request brings.
    """
    text, wrong = body(base, head), bool(base or head)
    sticky.upsert(github, pull, comments, markers.config(), text, before_write, create=wrong)


def body(base: Sequence[str], head: Sequence[str]) -> str:
    """The comment. The problems quote the file, so they are hostile text."""
    parts = []
    if base:
        parts.append(
            "The settings that ptopt finds for this pull request cannot be used, so it reviewed with the defaults:\n\n"
            + listed(base)
        )
    if head:
        parts.append("The settings that this pull request brings could not be used:\n\n" + listed(head))
    if parts:
        parts.append("`ptopt config check` finds the same before a push.")
    return f"{markers.config()}\n" + "\n\n".join(parts or [_VALID_AGAIN]) + "\n"


def listed(problems: Sequence[str], indent: str = "") -> str:
    """Problems as a list in Markdown."""
    lines = [f"{indent}- {markdown_text(problem)}" for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        lines.append(f"{indent}- … and {len(problems) - _MOST} more")
    return "\n".join(lines)
