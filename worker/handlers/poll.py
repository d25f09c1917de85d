"""Asks for the reactions to our comments on one pull request: GitHub sends no webhook for them."""

from __future__ import annotations

from datetime import datetime, timezone

from feedback import signals
from feedback.database import reading, writing
from feedback.models import CommentRow
from feedback.signals import SignalKind
from ptopt.github.values import Reaction
from worker.records import hash_key
from worker.work import Work

_WRITERS = ("admin", "maintain", "write")


def handle(work: Work) -> str:
    job = work.job
    listed = {c.id: c.reactions for c in work.github.review_comments(job.repository, job.pull)}
    with reading(work.engine) as session:
        ours = signals.comments_of(session, job.repository_id, job.pull)
        told = {c.id: signals.known(session, c, [SignalKind.REACTION]) for c in ours}
        session.expunge_all()
    roles: dict[str, bool] = {}
    for comment in ours:
        if listed.get(comment.github_id) or (told[comment.id] and comment.github_id in listed):
            reactions = work.github.reactions(job.repository, "review", comment.github_id)
            people = [r for r in reactions if not r.actor.is_bot]
            for login in {r.actor.login for r in people} - roles.keys():
                roles[login] = work.github.permission(job.repository, login) in _WRITERS
            _record(work, comment, people, roles)
    return ""


def _record(work: Work, comment: CommentRow, reactions: list[Reaction], writes: dict[str, bool]) -> None:
    key, now = hash_key(work.settings), datetime.now(timezone.utc)
    with writing(work.engine) as session:
        for reaction in reactions:
            signals.record(
                session,
                comment,
                SignalKind.REACTION,
                reaction.content,
                actor=signals.hashed(str(reaction.actor.id), key),
                actor_writes=writes[reaction.actor.login],
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
