"""What a delivery requests: event handlers return jobs with typed payloads, the inbox stores them, workers run them.

A payload is JSON in its row. `dump` writes it and `load` reads it: nothing else knows how it is stored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ptopt.github.values import Actor

InstallationAction = Literal[
    "created", "deleted", "suspend", "unsuspend", "new_permissions_accepted", "added", "removed"
]


class Kind(str, enum.Enum):
    """What a job does. `subject` tells jobs of one kind apart that share repository, pull request and head."""

    # Review a head. Subject: "", or "reopened" or "ready_for_review", as the same head may have been skipped before;
    # of a requested one, that of `worker.requested_review`. Debounced; a newer head supersedes it.
    REVIEW = "review"
    # Run the slash commands of a comment. Subject: "<issue|review>-<comment id>-<n>"; n is 0, or the second of the
    # edit (Unix time).
    COMMAND = "command"
    CLOSED = "closed"  # The pull request was closed. Subject: "" or "merged".
    THREAD = "thread"  # A thread was resolved or unresolved. Subject: digest of the delivery's body.
    REPLY = "reply"  # Somebody replied in a thread. Subject: comment id.
    DELETED = "deleted"  # A comment of ours was deleted. Subject: comment id.
    POLL = "poll"  # Read what GitHub sends no webhook for. Subject: when, as "2026-11-20T10:00:00". Made by the scheduler.
    # Audit the repository. Subject: the day, as "2026-11-20"; pull: 0, so that a repository has one a day.
    AUDIT = "audit"
    INSTALLATION = "installation"  # The App's installation changed. Subject: digest of the delivery's body.

    def __str__(self) -> str:
        return self.value


# What people read, where the name alone would not tell. By a member or by its text, which are equal.
_WORDS: dict[str, str] = {
    Kind.COMMAND: "slash command",
    Kind.CLOSED: "pull request closed",
    Kind.THREAD: "conversation resolved or reopened",
    Kind.DELETED: "comment deleted",
    Kind.POLL: "look for reactions",
}


def words(kind: str) -> str:
    """A kind for people; as it is where this version does not know it."""
    return _WORDS.get(kind, kind)


@dataclass(frozen=True, slots=True)
class NoPayload:
    """The columns of the job say all. Of a review, the same as `ReviewPayload()`."""


@dataclass(frozen=True, slots=True)
class ReviewPayload:
    """`requested` by a slash command, whose answer is to say what became of it. `full`: all of the changed files."""

    requested: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class CommandPayload:
    """A comment that may hold commands. The fields are those of `bot.commands.base.CommandRequest`."""

    where: Literal["issue", "review"]
    comment_id: int
    in_reply_to: int | None
    body: str
    previous_body: str | None
    actor: Actor


@dataclass(frozen=True, slots=True)
class ThreadPayload:
    comment_ids: list[int]
    resolved: bool
    actor: Actor


@dataclass(frozen=True, slots=True)
class ReplyPayload:
    comment_id: int
    in_reply_to: int
    actor: Actor
    says: str = ""  # a value of feedback.signals.replies.Says: the text stays where it is


@dataclass(frozen=True, slots=True)
class DeletedPayload:
    comment_id: int
    actor: Actor


@dataclass(frozen=True, slots=True)
class AuditPayload:
    pull: int  # where it is posted


@dataclass(frozen=True, slots=True)
class InstalledRepository:
    id: int
    full_name: str
    private: bool


@dataclass(frozen=True, slots=True)
class InstallationPayload:
    """`repositories` were added, those with the ids `removed` were taken away."""

    action: InstallationAction
    installation_id: int
    account: str
    repositories: list[InstalledRepository] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


Payload = (
    NoPayload
    | ReviewPayload
    | CommandPayload
    | ThreadPayload
    | ReplyPayload
    | DeletedPayload
    | AuditPayload
    | InstallationPayload
)

_ADAPTERS: Mapping[Kind, TypeAdapter[Any]] = {
    Kind.REVIEW: TypeAdapter(ReviewPayload),
    Kind.COMMAND: TypeAdapter(CommandPayload),
    Kind.CLOSED: TypeAdapter(NoPayload),
    Kind.THREAD: TypeAdapter(ThreadPayload),
    Kind.REPLY: TypeAdapter(ReplyPayload),
    Kind.DELETED: TypeAdapter(DeletedPayload),
    Kind.POLL: TypeAdapter(NoPayload),
    Kind.AUDIT: TypeAdapter(AuditPayload),
    Kind.INSTALLATION: TypeAdapter(InstallationPayload),
}

# The Celery queue of each kind. `training` is the queue of the retraining tasks, which are no jobs of a delivery.
QUEUES = {
    Kind.REVIEW: "review",
    Kind.COMMAND: "command",
    Kind.CLOSED: "feedback",
    Kind.THREAD: "feedback",
    Kind.REPLY: "feedback",
    Kind.DELETED: "feedback",
    Kind.POLL: "feedback",
    Kind.AUDIT: "review",
    Kind.INSTALLATION: "feedback",
}


class PayloadError(ValueError):
    """A stored payload is not one of its kind. The text names the fields, and shows no value."""


def dump(payload: Payload) -> dict[str, Any]:
    """The payload as its row has it."""
    return asdict(payload)


def load(kind: Kind, stored: Mapping[str, Any]) -> Payload:
    """The payload of a row. Raises PayloadError. Fields that a newer version added are left out."""
    try:
        payload: Payload = _ADAPTERS[kind].validate_python(stored)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)
        )
        raise PayloadError(f"the payload of this {kind} job is malformed: {problems}") from None
    return payload


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be. Its key is (repository_id, pull, head_sha, kind, subject); the second of a key is dropped."""

    kind: Kind
    installation_id: int = 0
    repository_id: int = 0
    repository: str = ""  # the full name
    pull: int = 0
    head_sha: str = ""
    subject: str = ""
    payload: Payload = NoPayload()
    actor: str = ""
    delay: float = 0.0  # seconds until it is due
