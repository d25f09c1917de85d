"""What is read of GitHub's payloads, and nothing else: ids, names, SHAs, the text of comments.

A URL of a payload is never read, so none can ever be requested. Whatever is not of the expected shape makes the whole
delivery malformed, see `bot.webhook`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from ptopt.github.endpoint import checked_repo
from ptopt.github.values import Actor

# SQLite and PostgreSQL store 64 bits with a sign.
Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Sha = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
FullName = Annotated[str, StringConstraints(max_length=255), AfterValidator(checked_repo)]
Login = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[\w.\[\]-]+$")]
Word = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9_]*$")]

# 65,536 characters of up to four bytes. PostgreSQL stores no NUL.
Text = Annotated[
    str, StringConstraints(max_length=262_144), AfterValidator(lambda text: text.replace("\0", "\ufffd"))
]


class Payload(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class User(Payload):
    """A person or a bot. A deleted account is null in payloads; GitHub shows it as "ghost"."""

    id: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    login: Login = "ghost"
    type: str = ""

    @property
    def is_bot(self) -> bool:
        return self.type == "Bot" or self.login.endswith("[bot]")

    def as_actor(self) -> Actor:
        return Actor(self.id, self.login, self.is_bot)


class Repository(Payload):
    id: Id
    full_name: FullName


class Installation(Payload):
    id: Id


class Event(Payload):
    """The part that all payloads have."""

    action: Word = ""
    sender: User | None = None
    # Deliveries of a repository's or an organisation's webhook have none; those of an App do.
    installation: Installation | None = None

    @property
    def actor(self) -> User:
        return self.sender or User()

    @property
    def installation_id(self) -> int:
        """0 without one."""
        return self.installation.id if self.installation else 0


class RepositoryEvent(Event):
    repository: Repository


class Head(Payload):
    sha: Sha


class PullRequest(Payload):
    number: Number
    head: Head
    merged: bool = False


class PullRequestEvent(RepositoryEvent):
    pull_request: PullRequest


class Issue(Payload):
    number: Number
    # There when the issue is a pull request; only that is looked at.
    pull_request: dict[str, Any] | None = None


class Comment(Payload):
    id: Id
    body: Text | None = None
    user: User | None = None
    in_reply_to_id: Id | None = None
    created_at: datetime
    updated_at: datetime


Value = TypeVar("Value")


class Was(Payload, Generic[Value]):
    """A value before the change."""

    model_config = ConfigDict(populate_by_name=True)

    value: Value | None = Field(default=None, alias="from")


class Changes(Payload):
    body: Was[Text] | None = None


class CommentEvent(RepositoryEvent):
    comment: Comment
    changes: Changes | None = None

    @property
    def body(self) -> str:
        return self.comment.body or ""

    @property
    def is_by_author(self) -> bool:
        """Whether who wrote or edited is the comment's author. Accounts that are not known are nobody's."""
        author, actor = self.comment.user, self.sender
        return author is not None and actor is not None and author.id == actor.id

    @property
    def previous_body(self) -> str | None:
        """The text before the edit; None when the text was not edited."""
        if self.changes is None or self.changes.body is None:
            return None
        return self.changes.body.value or ""


class IssueCommentEvent(CommentEvent):
    issue: Issue


class Numbered(Payload):
    number: Number


class ReviewCommentEvent(CommentEvent):
    pull_request: Numbered


class ThreadComment(Payload):
    id: Id


class Thread(Payload):
    comments: list[ThreadComment]


class ReviewThreadEvent(RepositoryEvent):
    pull_request: Numbered
    thread: Thread


class Account(Payload):
    login: Login | None = None
    slug: Login | None = None  # an enterprise has no login


class InstalledOn(Installation):
    account: Account | None = None


class InstalledRepository(Repository):
    private: bool = True


class InstallationEvent(Event):
    installation: InstalledOn
    repositories: list[InstalledRepository] | None = None


class InstallationRepositoriesEvent(Event):
    installation: InstalledOn
    repositories_added: list[InstalledRepository] = []
    repositories_removed: list[Repository] = []
