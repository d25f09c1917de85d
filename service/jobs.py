"""What a delivery asks for. Event handlers return these values; the inbox stores them; workers carry them out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class Kind(str, enum.Enum):
    """What a job does. `subject` and `payload` of each are said here."""

    # subject "", or "reopened" or "ready_for_review": then the same head may have been skipped before; payload {}.
    # Asked for by a command: `worker.requested_review.subject`, payload {"asked": True, "full": bool}.
    # Debounced; a newer head supersedes it.
    REVIEW = "review"
    # subject "<issue|review>-<comment id>-<n>", n is 0, or the second of the edit (Unix time); payload: CommandPayload
    COMMAND = "command"
    CLOSED = "closed"  # the pull request was closed: subject "" or "merged"; payload {"merged": bool}
    # somebody resolved or unresolved a thread: subject = digest of the delivery's body; payload: ThreadPayload
    THREAD = "thread"
    REPLY = "reply"  # somebody replied in a thread: subject = comment id; payload: ReplyPayload
    POLL = "poll"  # ask for reactions: subject = when, as "2026-11-20T10:00:00"; payload {}; made by the scheduler
    INSTALLATION = "installation"  # subject = digest of the delivery's body; payload: InstallationPayload

    def __str__(self) -> str:
        return self.value


# The Celery queue of each kind. `training` is the queue of the retraining tasks, which are no jobs of a delivery.
QUEUES = {
    Kind.REVIEW: "review",
    Kind.COMMAND: "command",
    Kind.CLOSED: "feedback",
    Kind.THREAD: "feedback",
    Kind.REPLY: "feedback",
    Kind.POLL: "feedback",
    Kind.INSTALLATION: "feedback",
}


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
    payload: dict[str, Any] = field(default_factory=dict)
    actor: str = ""
    delay: float = 0.0  # seconds until it is due
