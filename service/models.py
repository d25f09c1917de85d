"""The tables. The same on SQLite and PostgreSQL; `migrations/` brings a database to this state.

No code of a repository is stored: findings by fingerprint, suggestions and people by keyed hash. Times are UTC.
Deleting an installation deletes what belongs to it.
"""

from __future__ import annotations

import enum
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    false,
    or_,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import DateTime, TypeDecorator

from service.jobs import Kind


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time. SQLite forgets time zones, so it is always UTC and always aware."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        # PostgreSQL answers in the time zone of its session.
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


# SQLite counts up by itself only for a plain INTEGER key.
_Id = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012 (read once, by SQLAlchemy)
        datetime: UtcDateTime(),
        int: BigInteger(),
        dict[str, Any]: JSON(),
    }


class Installation(Base):
    """The App on one account. `id` is GitHub's."""

    __tablename__ = "installations"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    account: Mapped[str] = mapped_column(String(100))
    suspended: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime]


class Repository(Base):
    """`id` is GitHub's; the name follows renames."""

    __tablename__ = "repositories"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    installation_id: Mapped[int] = mapped_column(
        ForeignKey("installations.id", ondelete="CASCADE"), index=True
    )
    full_name: Mapped[str] = mapped_column(String(255), index=True)
    private: Mapped[bool] = mapped_column(default=True)
    # Did its base branch let its feedback be learned from, when it was last looked at?
    learn: Mapped[bool] = mapped_column(default=False, server_default=false())


class DeliveryRow(Base):
    """A webhook delivery that was accepted: its GUID can be claimed once."""

    __tablename__ = "deliveries"

    guid: Mapped[str] = mapped_column(String(64), primary_key=True)
    event: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(64), default="")
    installation_id: Mapped[int | None]
    received_at: Mapped[datetime] = mapped_column(index=True)


class JobState(str, enum.Enum):
    QUEUED = "queued"  # due at `due_at`; on its way to a worker when `published_at` is set
    RUNNING = "running"  # `owner` works on it until `lease_until`
    DONE = "done"
    SUPERSEDED = "superseded"  # not wanted then: a newer push, a draft, a pause; a review may be queued again
    DEAD = "dead"  # failed too often; `error` says how


_RUNNING_ON_A_PULL: dict[str, Any] = {
    f"{dialect}_where": text("state = 'running' AND pull > 0") for dialect in ("sqlite", "postgresql")
}


class Job(Base):
    """Something to do once. The unique key makes redelivery, retries and two workers at once give one review."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("repository_id", "pull", "head_sha", "kind", "subject", name="uq_jobs_key"),
        Index("ix_jobs_state_due", "state", "due_at"),
        # One job at a time works on a pull request: the database itself sees to it.
        Index("uq_jobs_running", "repository_id", "pull", unique=True, **_RUNNING_ON_A_PULL),
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(32))  # a value of service.jobs.Kind
    # GitHub's ids, not foreign keys: an event may be the first we hear of a repository. 0 where there is none.
    installation_id: Mapped[int] = mapped_column(index=True)
    repository_id: Mapped[int]
    repository: Mapped[str] = mapped_column(String(255))  # the full name
    pull: Mapped[int]
    head_sha: Mapped[str] = mapped_column(String(64))  # "" where the kind has none
    subject: Mapped[str] = mapped_column(String(128))  # tells jobs of one kind apart, see service.jobs.Kind
    payload: Mapped[dict[str, Any]]
    # Login of who requested it, for the budget of commands; forgotten after some hours.
    actor: Mapped[str] = mapped_column(String(100), default="")
    delivery: Mapped[str] = mapped_column(String(64), default="")  # GUID, for the log

    state: Mapped[str] = mapped_column(String(16), default=JobState.QUEUED.value)
    attempts: Mapped[int] = mapped_column(
        default=0
    )  # starts in a row that ended in a crash or an error of ours
    deferrals: Mapped[int] = mapped_column(default=0)  # times GitHub told us to come back later
    due_at: Mapped[datetime]
    published_at: Mapped[datetime | None]
    lease_until: Mapped[datetime | None]
    owner: Mapped[str] = mapped_column(String(64), default="")
    error: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


def worth_listing() -> ColumnElement[bool]:
    """Where people look for what became of a review or a command: jobs but for looks for reactions that went well, of which a pull
    request has one after another."""
    return or_(Job.kind != Kind.POLL.value, Job.state == JobState.DEAD.value)


class ReviewRow(Base):
    """A review that was posted on GitHub, or a silent one: then `github_id` is None."""

    __tablename__ = "reviews"
    __table_args__ = (UniqueConstraint("repository_id", "pull", "head_sha", name="uq_reviews_head"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id", ondelete="CASCADE"), index=True)
    pull: Mapped[int]
    head_sha: Mapped[str] = mapped_column(String(64))
    github_id: Mapped[int | None]
    ptopt_version: Mapped[str] = mapped_column(String(32))
    files_reviewed: Mapped[int]
    findings: Mapped[int]  # all that are in force on this head, new or posted before
    # The model that took part in the review that was posted, see ptopt.findings.ModelRecord; "" for the rules alone.
    model: Mapped[str] = mapped_column(String(200), default="", server_default="")
    adapter: Mapped[str] = mapped_column(String(64), default="", server_default="")
    prompt_version: Mapped[str] = mapped_column(String(32), default="", server_default="")
    schema_version: Mapped[str] = mapped_column(String(32), default="", server_default="")
    model_note: Mapped[str] = mapped_column(String(300), default="", server_default="")  # why it took no part
    # The version of the ranker, see `Version`; "" for the one that ptopt carries.
    ranker: Mapped[str] = mapped_column(String(64), default="", server_default="")
    received_at: Mapped[datetime]  # when the job was created
    posted_at: Mapped[datetime]  # or found to be silent


class CommentRow(Base):
    """A review comment of ours. `github_id` is the id of the review comment."""

    __tablename__ = "comments"
    __table_args__ = (UniqueConstraint("repository_id", "github_id", name="uq_comments_github"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    review_id: Mapped[int] = mapped_column(ForeignKey("reviews.id", ondelete="CASCADE"), index=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id", ondelete="CASCADE"))
    pull: Mapped[int]
    github_id: Mapped[int]
    rule: Mapped[str] = mapped_column(String(16))
    fingerprint: Mapped[str] = mapped_column(String(64))
    origin: Mapped[str] = mapped_column(String(16))
    confidence: Mapped[float]
    # What ranker and model gave it before feedback; None in rows of before there was any: then `confidence` is.
    score: Mapped[float | None]
    # What the ranker weighed, by name; only where the repository lets its feedback be learned from, else empty.
    features: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    # Was it shown although the rule is quiet in the repository?
    explored: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Of the pull request: keyed hash of the author's id; "" where it is not known.
    author: Mapped[str] = mapped_column(String(64), default="", server_default="")
    safety: Mapped[str] = mapped_column(String(16), default="")  # of the fix; "" without one
    path_hash: Mapped[str] = mapped_column(String(64))
    # Hashes that tell whether the suggestion was applied, see feedback.signals.suggestions; empty without a suggestion.
    suggestion: Mapped[dict[str, Any]] = mapped_column(default=dict)
    posted_at: Mapped[datetime]


class Signal(Base):
    """One thing that one person did about one comment of ours. Append-only."""

    __tablename__ = "signals"
    __table_args__ = (
        UniqueConstraint("comment_id", "kind", "actor", "value", "source", name="uq_signals_once"),
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    comment_id: Mapped[int] = mapped_column(ForeignKey("comments.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16))  # a value of feedback.signals.SignalKind
    value: Mapped[str] = mapped_column(String(32))
    actor: Mapped[str] = mapped_column(
        String(64)
    )  # keyed hash of the person's id; "" where nobody can be named
    actor_writes: Mapped[bool | None]  # may the person write to the repository? None: not known
    source: Mapped[str] = mapped_column(
        String(64)
    )  # where it came from: a reaction id, a head SHA, a comment id
    # The reason of `/ptopt feedback`, which people give to be kept. Nothing else that they write is.
    note: Mapped[str] = mapped_column(String(500), default="")
    created_at: Mapped[datetime]


class AppCredentials(Base):
    """What the manifest flow brought, encrypted with the service's secret key. One row."""

    __tablename__ = "app_credentials"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # the App's id on GitHub
    slug: Mapped[str] = mapped_column(String(100))
    sealed: Mapped[str] = mapped_column(Text)  # private key and webhook secret
    created_at: Mapped[datetime]


class DashboardSession(Base):
    """Somebody who is signed in to the dashboard."""

    __tablename__ = "dashboard_sessions"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of what the cookie holds
    login: Mapped[str] = mapped_column(String(100))
    sealed_token: Mapped[str] = mapped_column(Text)  # acts as the person on GitHub; encrypted
    expires_at: Mapped[datetime] = mapped_column(index=True)


class PolledPull(Base):
    """A pull request that is polled for what people do about our comments; see feedback.signals.schedule."""

    __tablename__ = "polled_pulls"

    repository_id: Mapped[int] = mapped_column(
        ForeignKey("repositories.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    pull: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    closed_at: Mapped[datetime | None]
    # When we last commented, or anybody did anything about a comment; None: the next poll sets it.
    active_at: Mapped[datetime | None]
    next_poll_at: Mapped[datetime] = mapped_column(index=True)


class EndedAnalyses(Base):
    """How many analyses were ended before their time, of all workers: a counter for `/metrics`."""

    __tablename__ = "ended_analyses"

    reason: Mapped[str] = mapped_column(String(16), primary_key=True)  # a name of worker.isolation.REASONS
    number: Mapped[int]


class VersionState(str, enum.Enum):
    """The stage of a version. Of each subject at most one is active, and one a canary."""

    CANARY = "canary"  # in use in a share of the repositories
    ACTIVE = "active"  # in use in all others
    RETIRED = "retired"  # was one of these, and a newer one took its place
    REFUSED = "refused"  # the evaluation did not admit it
    ROLLED_BACK = "rolled back"  # it did harm


def _one_of(state: VersionState) -> Index:
    where: dict[str, Any] = {
        f"{dialect}_where": text(f"state = '{state.value}'") for dialect in ("sqlite", "postgresql")
    }
    return Index(f"uq_versions_{state.value}", "subject", unique=True, **where)


class Version(Base):
    """A ranker or an adapter that a retraining made.

    `hash` is the SHA-256 of the weights of a ranker, which never change, or the hash of an adapter in the registry.
    """

    __tablename__ = "versions"
    __table_args__ = (_one_of(VersionState.ACTIVE), _one_of(VersionState.CANARY))

    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    subject: Mapped[str] = mapped_column(String(16))  # "ranker" | "adapter"
    weights: Mapped[str] = mapped_column(Text)  # a data file of `ptopt.ranker.model`; "" of an adapter
    card: Mapped[dict[str, Any]]  # data, evaluation, parent
    created_at: Mapped[datetime]
    changed_at: Mapped[datetime]  # of the state


class VersionUse(Base):
    """One try to review a pull request: with which version, how long it took, and whether it failed. Kept for some days."""

    __tablename__ = "version_uses"
    __table_args__ = (Index("ix_version_uses_version_at", "subject", "version", "at"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    subject: Mapped[str] = mapped_column(String(16))  # "ranker" | "adapter"
    version: Mapped[str] = mapped_column(String(64))  # "" for the ranker that ptopt carries, or no adapter
    repository_id: Mapped[int] = mapped_column(ForeignKey("repositories.id", ondelete="CASCADE"))
    failed: Mapped[bool]
    seconds: Mapped[float]
    at: Mapped[datetime]


class Retraining(Base):
    """A run of `python -m training retrain`. `owner` works on it until `lease_until`; after that another may go on."""

    __tablename__ = "retrainings"
    __table_args__ = (
        # One at a time: two that start together are one.
        Index(
            "uq_retrainings_running",
            "subject",
            unique=True,
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    subject: Mapped[str] = mapped_column(String(16))  # "ranker" | "adapter"
    state: Mapped[str] = mapped_column(String(16))  # "running" | "done" | "failed"
    reason: Mapped[str] = mapped_column(String(200))  # why it was started
    result: Mapped[str] = mapped_column(String(64), default="")  # hash of what it registered
    note: Mapped[str] = mapped_column(Text, default="")  # why it failed
    attempts: Mapped[int] = mapped_column(default=0)
    owner: Mapped[str] = mapped_column(String(64), default="")
    lease_until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class LearningEvent(Base):
    """What happened to a retraining and to what it made. A step of a retraining has one event, however often it was run."""

    __tablename__ = "learning_events"
    __table_args__ = (UniqueConstraint("retraining_id", "kind", name="uq_learning_events_step"),)

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    retraining_id: Mapped[int | None] = mapped_column(ForeignKey("retrainings.id", ondelete="CASCADE"))
    subject: Mapped[str] = mapped_column(String(16))  # "ranker" | "adapter"
    kind: Mapped[str] = mapped_column(String(32))  # "started", "dataset", "fitted", "evaluated", "canary", …
    hash: Mapped[str] = mapped_column(String(64), default="")  # of the dataset, the ranker or the adapter
    detail: Mapped[dict[str, Any]] = mapped_column(default=dict)  # figures and the reason
    at: Mapped[datetime] = mapped_column(index=True)
