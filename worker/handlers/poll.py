"""Reads what GitHub sends no webhook for, of one pull request in one query: reactions, comments that are hidden or gone.

A lost webhook that the pull request was closed is made up for as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone

from sqlalchemy.orm import Session

from feedback import signals
from feedback.signals import SignalKind, hidden, reactions
from ptopt.github.errors import NotFoundError
from ptopt.github.values import Actor, Reaction, ThreadResponses
from service.database import reading, writing
from service.jobs import NoPayload
from service.models import CommentRow, Signal
from worker import person_signal, polled_pulls
from worker.handlers import closed
from worker.job_context import JobContext


def handle(context: JobContext, payload: NoPayload) -> str:
    job = context.job
    try:
        pull = context.github.responses(job.repository, job.pull)
    except NotFoundError:  # hidden from us, or gone for good
        with writing(context.engine) as session:
            polled_pulls.lose(session, job, _now())
        raise
    with reading(context.engine) as session:
        lost = not pull.open and polled_pulls.is_open(session, job)
    if lost:
        closed.settle(context, pull)
    threads = {thread.comment_id: thread for thread in pull.threads}
    found = [_look(context, comment, threads.get(comment.github_id)) for comment in _known(context)]
    changed = [one for one in found if one.new or one.back or one.hidden]
    writes = {
        actor: person_signal.may_write(context, actor) for actor in {r.actor for o in found for r in o.new}
    }
    if changed:
        now = _now()
        with writing(context.engine) as session:
            for one in changed:
                _record(context, session, one, writes, now)
            polled_pulls.active(session, job, context.settings, now)
    return ""


@dataclass(slots=True)
class _Comment:
    """A comment of ours, with the signals of these kinds; `standing`: that nobody took back."""

    row: CommentRow
    reactions: list[Signal]
    standing_reactions: list[Signal]
    standing_hidden: list[Signal]

    @property
    def github_id(self) -> int:
        return self.row.github_id


@dataclass(slots=True)
class _Change:
    """What is new of a comment, and what was taken back."""

    row: CommentRow
    new: list[Reaction] = field(default_factory=list)
    back: list[Signal] = field(default_factory=list)
    hidden: str | None = None


def _known(context: JobContext) -> list[_Comment]:
    job = context.job
    with reading(context.engine) as session:
        found = [
            _Comment(
                row,
                signals.known(session, row, [SignalKind.REACTION]),
                signals.standing(session, row, [SignalKind.REACTION]),
                signals.standing(session, row, [SignalKind.HIDDEN]),
            )
            for row in signals.comments_of(session, job.repository_id, job.pull)
        ]
        session.expunge_all()
    return found


def _look(context: JobContext, comment: _Comment, thread: ThreadResponses | None) -> _Change:
    if thread is None:
        gone = hidden.was_deleted(comment.row.posted_at, _now(), comment.standing_hidden)
        return _Change(comment.row, hidden=hidden.DELETED if gone else None)
    listed = list(thread.reactions)
    if not thread.complete:
        listed = context.github.reactions(context.job.repository, "review", comment.github_id)
    value, back = hidden.changed(thread.minimized, comment.standing_hidden)
    return _Change(
        comment.row,
        reactions.new(listed, comment.reactions),
        [*reactions.gone(listed, comment.standing_reactions), *back],
        value,
    )


def _record(
    context: JobContext, session: Session, found: _Change, writes: dict[Actor, bool | None], now: datetime
) -> None:
    for reaction in found.new:
        signals.record(
            session,
            found.row,
            SignalKind.REACTION,
            reaction.content,
            actor=person_signal.hashed(context, reaction.actor),
            actor_writes=writes[reaction.actor],
            source=reactions.source_of(reaction),
            now=now,
        )
    for signal in found.back:
        signals.withdraw(session, found.row, signal, now)
    if found.hidden is not None:
        # Nobody without write access can, and nobody is named.
        source = f"poll-{now:%Y-%m-%dT%H:%M:%S.%f}"
        signals.record(
            session,
            found.row,
            SignalKind.HIDDEN,
            found.hidden,
            actor="",
            actor_writes=True,
            source=source,
            now=now,
        )


def _now() -> datetime:
    return datetime.now(timezone.utc)
