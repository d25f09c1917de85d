"""What ptopt reads from GitHub and writes to it. Texts are hostile data.

`repo` is always the full name, `owner/name`. Lines are 1-based lines of the head file (side RIGHT).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

CommentKind = Literal["issue", "review"]  # in the conversation, or on the diff
FileStatus = Literal["added", "removed", "modified", "renamed", "copied", "changed", "unchanged"]
ReactionContent = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]
Role = Literal["admin", "maintain", "write", "triage", "read", "none"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something. The ghost of a deleted account has id 0 and login "ghost"."""

    id: int
    login: str
    is_bot: bool


@dataclass(frozen=True, slots=True)
class PullRequest:
    repo: str
    repo_id: int
    number: int
    title: str
    open: bool
    merged: bool
    draft: bool
    author: Actor
    labels: tuple[str, ...]
    head_sha: str
    head_ref: str
    head_repo: str | None  # None when the fork is gone
    base_sha: str
    base_ref: str
    changed_files: int
    changed_lines: int  # additions + deletions


@dataclass(frozen=True, slots=True)
class PullFile:
    """A file of the pull request's diff. `patch` is None when GitHub leaves it out: binary, or too large."""

    path: str
    previous_path: str | None
    status: FileStatus
    blob_sha: str | None
    additions: int
    deletions: int
    patch: str | None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of one folder of a commit. `path` is its name in that folder."""

    path: str
    type: Literal["blob", "tree", "commit"]
    sha: str
    size: int  # bytes of a blob, else 0


@dataclass(frozen=True, slots=True)
class CommentDraft:
    """A comment on head lines `start_line` to `line`; `start_line` is None for one line."""

    path: str
    line: int
    start_line: int | None
    body: str


@dataclass(frozen=True, slots=True)
class ReviewDraft:
    """A review with event COMMENT."""

    commit_id: str
    body: str
    comments: tuple[CommentDraft, ...]


@dataclass(frozen=True, slots=True)
class PostedReview:
    id: int
    author: Actor
    body: str
    commit_id: str  # "" when GitHub no longer knows
    submitted_at: datetime | None


@dataclass(frozen=True, slots=True)
class PostedComment:
    """A review comment. `line` is None once it is outdated."""

    id: int
    author: Actor
    body: str
    path: str
    line: int | None
    original_line: int | None
    original_commit_id: str
    review_id: int | None
    in_reply_to: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class IssueComment:
    """A comment in the conversation of a pull request."""

    id: int
    author: Actor
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Thread:
    """A review thread: its review comments by id, with their authors, first one first."""

    id: str  # the GraphQL node id
    resolved: bool
    resolved_by: str | None
    comments: tuple[tuple[int, Actor], ...]


@dataclass(frozen=True, slots=True)
class Reaction:
    id: int
    content: ReactionContent
    actor: Actor
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ThreadResponses:
    """What became of a review thread, and the reactions to its first comment, the id of which is `comment_id`.

    `minimized` is GitHub's reason, as "off-topic"; "" where it gives none, None for a comment that is not minimized. Not
    `complete`: there are more reactions.
    """

    comment_id: int
    resolved: bool
    outdated: bool
    minimized: str | None
    reactions: tuple[Reaction, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class PullResponses:
    """What people did about the review comments of a pull request until now."""

    open: bool
    merged: bool
    head_sha: str
    threads: tuple[ThreadResponses, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotation of a check run."""

    path: str
    start_line: int
    end_line: int
    level: Literal["notice", "warning"]
    title: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A completed check run. `text` and `summary` are Markdown."""

    head_sha: str
    conclusion: Literal["success", "neutral"]
    title: str
    summary: str
    annotations: tuple[Annotation, ...]
    external_id: str  # how we find it again


@dataclass(frozen=True, slots=True)
class Delivery:
    """One webhook delivery as GitHub remembers it."""

    id: int
    guid: str
    delivered_at: datetime
    event: str
    redelivery: bool
    status_code: int  # 0 when it could not be delivered
