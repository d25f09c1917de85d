"""One comment on an invalid configuration: that of the pull request, and that which it is reviewed with.

It is edited as the problems change, and never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptopt.github import markers, sticky
from ptopt.github.client import GitHubClient
from ptopt.github.values import IssueComment, PullRequest
from ptopt.report.text import markdown_text

_MOST = 20  # problems listed of each kind
_VALID_AGAIN = "The configuration is valid again."


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
            "The configuration on the base branch is not valid, so this pull request was reviewed with the defaults:\n\n"
            + listed(base)
        )
    if head:
        parts.append("This pull request makes the configuration invalid:\n\n" + listed(head))
    if parts:
        parts.append("Run `ptopt config check` to see these problems before you push.")
    return f"{markers.config()}\n" + "\n\n".join(parts or [_VALID_AGAIN]) + "\n"


def listed(problems: Sequence[str], indent: str = "") -> str:
    """Problems as a list in Markdown."""
    lines = [f"{indent}- {markdown_text(problem)}" for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        lines.append(f"{indent}- … and {len(problems) - _MOST} more")
    return "\n".join(lines)
