"""One comment on settings that cannot be used: those that the pull request brings, and those it is reviewed with.

It is edited as the problems change, and never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ptopt.github import markers
from ptopt.github.values import IssueComment, PullRequest
from ptopt.report.text import markdown_text

_MOST = 20  # problems told of each kind
_MENDED = "The settings of ptopt can be read again. Thank you."


class Comments(Protocol):
    def identity(self) -> str: ...
    def create_issue_comment(self, repo: str, number: int, body: str) -> IssueComment: ...
    def edit_issue_comment(self, repo: str, comment_id: int, body: str) -> None: ...


def tell(
    github: Comments,
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
    me, mark = github.identity(), markers.config()
    ours = next((c for c in comments if c.author.login == me and markers.first(c.body, mark.kind)), None)
    text = body(base, head)
    if ours is not None:
        if ours.body.replace("\r\n", "\n").strip() != text.strip():
            before_write()
            github.edit_issue_comment(pull.repo, ours.id, text)
    elif base or head:
        before_write()
        github.create_issue_comment(pull.repo, pull.number, text)


def body(base: Sequence[str], head: Sequence[str]) -> str:
    """The comment. The problems quote the file, so they are hostile text."""
    parts = []
    if base:
        parts.append(
            "The settings that ptopt finds for this pull request cannot be used, so it reviewed with the defaults:\n\n"
            + _list(base)
        )
    if head:
        parts.append("The settings that this pull request brings could not be used:\n\n" + _list(head))
    if parts:
        parts.append("`ptopt config check` finds the same before a push.")
    return f"{markers.config()}\n" + "\n\n".join(parts or [_MENDED]) + "\n"


def _list(problems: Sequence[str]) -> str:
    lines = [f"- {markdown_text(problem)}" for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        lines.append(f"- … and {len(problems) - _MOST} more")
    return "\n".join(lines)
