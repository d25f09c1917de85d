"""Reviews the head of a pull request and posts what there is to say."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import select

from feedback.signals import SignalKind
from ptopt.github.errors import SupersededError
from ptopt.github.pipeline import Outcome, review_pull
from service import leases
from service.database import reading
from service.jobs import Kind
from service.models import Job
from worker import applied_suggestions, requested_review, review_records
from worker.job_context import Later, Work

_LAG = 10.0  # seconds that GitHub's API may be behind its webhooks
_LAG_TRIES = 3


def handle(work: Work) -> str:
    job = work.job
    # By its id: a repository keeps the model that it was given when it is renamed.
    with work.resources.model.advisor_for(str(job.repository_id)) as advisor:
        outcome = review_pull(
            work.github,
            job.repository,
            job.pull,
            before_write=work.check,
            head_sha=job.head_sha,
            asked=bool(job.payload.get("asked")),
            full=bool(job.payload.get("full")),
            advisor=advisor,
        )
    if outcome.status == "superseded":
        _follow(work, outcome)
        raise SupersededError(outcome.reason)
    if outcome.status in ("skipped", "paused"):
        requested_review.tell(work, outcome)
        # Not reviewed: when the draft is ready, or the pause ends, the same head may be queued again.
        raise SupersededError(outcome.reason)
    review_records.store(work, outcome, datetime.now(timezone.utc))
    applied_suggestions.note(work, job.head_sha, [SignalKind.APPLIED], outcome.change)
    notes = outcome.posted.notes if outcome.posted else ()
    return "; ".join([*notes, *requested_review.tell(work, outcome)])


def _follow(work: Work, outcome: Outcome) -> None:
    """The head is another one: see to it that it is reviewed, even if its delivery was lost."""
    job = work.job
    head = outcome.pull.head_sha if outcome.pull else job.head_sha
    if head == job.head_sha:  # it moved while we were at work, or the job is not ours any more
        pull = work.github.pull(job.repository, job.pull)
        head = pull.head_sha
        if head == job.head_sha or not pull.open:
            return
    if job.deferrals < _LAG_TRIES and _is_older(work, head):
        raise Later(_LAG, "GitHub shows an older head than its webhook told, or somebody pushed it again")
    leases.ensure_review(work.engine, job, head, datetime.now(timezone.utc))


def _is_older(work: Work, head: str) -> bool:
    """Whether we heard of that head before we heard of ours."""
    job = work.job
    same = select(Job.id).where(Job.repository_id == job.repository_id, Job.pull == job.pull)
    older = same.where(Job.kind == Kind.REVIEW.value, Job.head_sha == head, Job.created_at < job.created_at)
    with reading(work.engine) as session:
        return session.scalar(older.limit(1)) is not None
