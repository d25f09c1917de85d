"""Reads the reactions to our comments on one pull request: GitHub sends no webhook for them."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import select

from feedback import signals
from feedback.signals import SignalKind
from ptopt.github.errors import NotFoundError
from ptopt.github.values import Actor, Reaction
from service.database import reading, writing
from service.jobs import NoPayload
from service.models import CommentRow, PolledPull
from worker import person_signal
from worker.handlers import closed
from worker.job_context import JobContext


def handle(context: JobContext, payload: NoPayload) -> str:
    job = context.job
    _close(context)
    listed = {c.id: c.reactions for c in context.github.review_comments(job.repository, job.pull)}
    with reading(context.engine) as session:
        ours = signals.comments_of(session, job.repository_id, job.pull)
        known = {c.id: signals.known(session, c, [SignalKind.REACTION]) for c in ours}
        session.expunge_all()
    writes: dict[Actor, bool | None] = {}
    for comment in ours:
        if listed.get(comment.github_id) or (known[comment.id] and comment.github_id in listed):
            reactions = context.github.reactions(job.repository, "review", comment.github_id)
            for actor in {r.actor for r in reactions if _is_a_person(r.actor)} - writes.keys():
                writes[actor] = person_signal.may_write(context, actor)
            _record(context, comment, reactions, writes)
    return ""


def _close(context: JobContext) -> None:
    """End the polling of a closed pull request, also when the delivery that it was closed was lost."""
    job = context.job
    row = select(PolledPull.closed_at).where(PolledPull.repository_id == job.repository_id)
    with reading(context.engine) as session:
        known = session.scalar(row.where(PolledPull.pull == job.pull))
    if known is None:
        try:
            pull = context.github.pull(job.repository, job.pull)
        except NotFoundError:  # hidden from us, or gone for good
            closed.end_polling(context)
            raise
        if not pull.open:
            closed.settle(context, pull)


def _is_a_person(actor: Actor) -> bool:
    """All deleted accounts are one, to GitHub: nobody's opinion."""
    return not actor.is_bot and actor.id != 0


def _record(
    context: JobContext, comment: CommentRow, reactions: list[Reaction], writes: dict[Actor, bool | None]
) -> None:
    now = datetime.now(timezone.utc)
    with writing(context.engine) as session:
        for reaction in reactions:
            if _is_a_person(reaction.actor):
                signals.record(
                    session,
                    comment,
                    SignalKind.REACTION,
                    reaction.content,
                    actor=person_signal.hashed(context, reaction.actor),
                    actor_writes=writes[reaction.actor],
                    source=f"reaction-{reaction.id}",
                    now=now,
                )
        here = {f"reaction-{reaction.id}" for reaction in reactions}
        for gone in signals.known(session, comment, [SignalKind.REACTION]):
            if gone.source not in here:
                signals.record(
                    session,
                    comment,
                    SignalKind.WITHDRAWN,
                    gone.value,
                    actor=gone.actor,
                    actor_writes=gone.actor_writes,
                    source=gone.source,
                    now=now,
                )
