"""Runs the slash commands of a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Literal

from sqlalchemy import Select, func, select

from bot import commands
from bot.commands.base import CommandRequest
from feedback import calibration
from feedback.calibration import RuleState
from feedback.signals import SignalKind
from ptopt.github.errors import RejectedError
from ptopt.github.values import Actor
from ptopt.ranker.model import threshold
from ptopt.report.text import code_span, count, markdown_text
from ptopt.rules import find_rule
from ptopt.runner import Runner
from service import inbox
from service.database import reading
from service.jobs import AuditPayload, CommandPayload, Kind, NewJob, ReviewPayload
from service.models import Job, JobState, ReviewRow
from worker import person_signal, requested_review
from worker.job_context import JobContext
from worker.ranker_versions import Choice

_MOST_RULES = 10  # whose feedback `/ptopt status` shows
_STATES = {
    JobState.QUEUED.value: "is queued",
    JobState.RUNNING.value: "is under way",
    JobState.DEAD.value: "failed; the operator of this service can see why with `python -m service jobs`",
}


def handle(context: JobContext, payload: CommandPayload) -> str:
    request = CommandRequest(
        repo=context.job.repository,
        number=context.job.pull,
        comment_id=payload.comment_id,
        where=payload.where,
        in_reply_to=payload.in_reply_to,
        body=payload.body,
        previous_body=payload.previous_body,
        actor=payload.actor,
    )
    try:
        commands.handle(request, context.github, ServiceHost(context, request))
    except RejectedError as error:  # the thread is gone, or the conversation takes no more
        return f"could not answer: {error}"
    return ""


def _read_along(review: ReviewRow) -> str:
    adapter = f", adapter {code_span(review.adapter[:12])}" if review.adapter else ""
    name = f"{code_span(review.model)}{adapter}"
    if review.model_note:
        return f"Model: {name} was not used in the last review: {markdown_text(review.model_note)}."
    return f"Model: {name} was used in the last review."


def _feedback(states: Sequence[RuleState]) -> Iterator[str]:
    """What the people of the repository made of the rules, those that moved most first."""
    least = threshold(None)
    moved = sorted(states, key=lambda state: (-abs(state.offset), state.rule))
    for state in moved[:_MOST_RULES]:
        yield f"Feedback on {_named(state.rule)}: {markdown_text(state.explained(least))}."
    if len(moved) > _MOST_RULES:
        yield f"Feedback: {count(len(moved) - _MOST_RULES, 'more rule')} had some."


def _named(rule: str) -> str:
    known = find_rule(rule)
    return code_span(rule if known is None else f"{rule} {known.name}")


class ServiceHost:
    """Where the commands run: `bot.commands.Host` for the service."""

    def __init__(self, context: JobContext, request: CommandRequest) -> None:
        self._context = context
        self._request = request
        self._now = datetime.now(timezone.utc)

    @property
    def runner(self) -> Runner:
        return self._ranker.runner(self._context.resources.isolation)

    @cached_property
    def _ranker(self) -> Choice:
        """What ranks in this repository."""
        return self._context.resources.rankers.of(self._context.job.repository_id)

    @property
    def budget(self) -> int:
        return self._context.settings.commands_per_hour

    def commands_in_last_hour(self, login: str) -> int:
        with reading(self._context.engine) as session:
            return session.scalar(self._given(login)) or 0

    def _given(self, login: str) -> Select[int]:
        given = select(func.count()).select_from(Job)
        given = given.where(Job.kind == Kind.COMMAND.value, Job.actor == login)
        return given.where(Job.created_at > self._now - timedelta(hours=1))

    @property
    def pull_budget(self) -> int:
        return self._context.settings.stranger_commands_per_pull

    def commands_on_pull(self, login: str) -> int:
        job = self._context.job
        on_pull = self._given(login).where(Job.repository_id == job.repository_id, Job.pull == job.pull)
        with reading(self._context.engine) as session:
            return session.scalar(on_pull) or 0

    def review(self, full: bool) -> str:
        job = self._context.job
        head = self._context.github.pull(job.repository, job.pull).head_sha
        shown = code_span(head[:7])
        if not full and self._is_reviewed(head):
            return f"The head {shown} was already reviewed. `/ptopt review --full` reviews it again."
        wanted = NewJob(
            kind=Kind.REVIEW,
            installation_id=job.installation_id,
            repository_id=job.repository_id,
            repository=job.repository,
            pull=job.pull,
            head_sha=head,
            subject=requested_review.subject(self._request.comment_id, full),
            payload=ReviewPayload(requested=True, full=full),
        )
        with self._context.engine.begin() as connection:
            inbox.add(connection, [wanted], self._now)
        return f"A{' full' if full else ''} review of the head {shown} is queued."

    def audit(self) -> str:
        job, day = self._context.job, f"{self._now:%Y-%m-%d}"
        earlier = select(Job.id).where(
            Job.repository_id == job.repository_id, Job.kind == Kind.AUDIT.value, Job.subject == day
        )
        with reading(self._context.engine) as session:
            if session.scalar(earlier) is not None:
                return "A repository is audited once a day; the audit of today was requested already."
        wanted = NewJob(
            kind=Kind.AUDIT,
            installation_id=job.installation_id,
            repository_id=job.repository_id,
            repository=job.repository,
            subject=day,
            payload=AuditPayload(job.pull),
        )
        with self._context.engine.begin() as connection:
            inbox.add(connection, [wanted], self._now)
        return "An audit of the repository is queued; it will be a comment here."

    def status(self) -> Sequence[str]:
        job = self._context.job
        reviews = select(Job.state, Job.head_sha, Job.created_at)
        reviews = reviews.where(Job.repository_id == job.repository_id, Job.pull == job.pull)
        reviews = reviews.where(Job.kind == Kind.REVIEW.value, Job.state.in_(_STATES))
        last = select(ReviewRow).order_by(ReviewRow.id.desc()).limit(1)
        last = last.where(ReviewRow.repository_id == job.repository_id, ReviewRow.pull == job.pull)
        with reading(self._context.engine) as session:
            found = session.execute(reviews.order_by(Job.id.desc()).limit(3)).all()
            model = [_read_along(row) for row in session.scalars(last) if row.model]
            learned = calibration.of_repository(session, job.repository_id).rules
        with self._ranker.used():
            feedback = list(_feedback(learned))
        waiting = [
            f"Queue: the review of {code_span(head[:7])}, requested at {at:%H:%M} UTC, {_STATES[state]}."
            for state, head, at in found
        ] or ["Queue: empty."]
        return [*waiting, *model, *feedback]

    def feedback(self, rule: str) -> str:
        with reading(self._context.engine) as session:
            learned = calibration.of_repository(session, self._context.job.repository_id).rules
        found = (state for state in learned if state.rule == rule)
        with self._ranker.used():
            return next((markdown_text(state.explained(threshold(None))) for state in found), "")

    def record_feedback(self, comment_id: int, good: bool, reason: str, actor: Actor) -> None:
        self._record([comment_id], SignalKind.VERDICT, "good" if good else "bad", actor, note=reason)

    def note_ignored(self, comment_ids: Sequence[int], scope: Literal["rule", "here"], actor: Actor) -> None:
        self._record(comment_ids, SignalKind.IGNORED, scope, actor)

    def _record(
        self, comment_ids: Sequence[int], kind: SignalKind, value: str, actor: Actor, note: str = ""
    ) -> None:
        source = f"{self._request.where}-{self._request.comment_id}"
        for comment_id in comment_ids:
            person_signal.record(self._context, [comment_id], kind, value, actor, source=source, note=note)

    def _is_reviewed(self, head: str) -> bool:
        job = self._context.job
        row = select(ReviewRow.id).where(ReviewRow.repository_id == job.repository_id)
        with reading(self._context.engine) as session:
            found = session.scalar(row.where(ReviewRow.pull == job.pull, ReviewRow.head_sha == head))
        return found is not None
