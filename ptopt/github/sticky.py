"""A comment of ours in the conversation that is edited as things change, and never repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptopt.github import markers
from ptopt.github.client import GitHubClient
from ptopt.github.markers import Marker
from ptopt.github.values import IssueComment, PullRequest


def upsert(
    github: GitHubClient,
    pull: PullRequest,
    comments: Iterable[IssueComment],
    marker: Marker,
    text: str,
    before_write: Callable[[], None],
    *,
    create: bool = True,
) -> None:
    """Bring our comment that begins with `marker` to `text`; `comments` are all of the conversation.

    Without `create`, only where there is one.
    """
    me = github.identity()
    ours = next(
        (c for c in comments if c.author.login == me and markers.first(c.body, marker.kind) == marker), None
    )
    if ours is None:
        if create:
            before_write()
            github.create_issue_comment(pull.repo, pull.number, text)
    elif not same_text(ours.body, text):
        before_write()
        github.edit_issue_comment(pull.repo, ours.id, text)


def same_text(posted: str, text: str) -> bool:
    """Whether a body on GitHub is that text: its pages may change the line ends and the white space around it."""
    return posted.replace("\r\n", "\n").strip() == text.strip()
