"""Reviews the head of a pull request and posts what there is to say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from sqlalchemy import select

from feedback import calibration
from ptopt.github.errors import SupersededError
from ptopt.github.filters import Limits
from ptopt.github.pipeline import Outcome, review_pull
from ptopt.learned import Learned
from ptopt.model.advisor import Advisor
from service import leases
from service.database import reading
from service.jobs import Kind, ReviewPayload
from service.models import Job
from service.versions import ADAPTER, RANKER
from worker import applied_suggestions, requested_review, review_records
from worker.job_context import JobContext, RetryLater
from worker.ranker_versions import Choice
from worker.version_uses import recorded

_LAG = 10.0  # seconds that GitHub's API may be behind its webhooks
_LAG_TRIES = 3


def handle(context: JobContext, payload: ReviewPayload) -> str:
    job = context.job
    # By its id: a repository keeps the model and the ranker that it was given when it is renamed.
    ranker = context.resources.rankers.of(job.repository_id)
    with (
        context.resources.model.advisor_for(str(job.repository_id)) as advisor,
        ranker.used(),
    ):
        versions = {RANKER: ranker.hash}
        if context.settings.model_registry is not None:
            versions[ADAPTER] = advisor.record.adapter if advisor is not None else ""
        outcome = _reviewed(context, payload, ranker, advisor, versions)
    if outcome.status == "superseded":
        _follow(context, outcome)
        raise SupersededError(outcome.reason)
    if outcome.status in ("skipped", "paused"):
        requested_review.report(context, payload, outcome)
        # Not reviewed: when the draft is ready, or the pause ends, the same head may be queued again.
        raise SupersededError(outcome.reason)
    review_records.store(context, outcome, ranker.hash, datetime.now(timezone.utc))
    applied_suggestions.note(context, job.head_sha, outcome.change)
    notes = outcome.posted.notes if outcome.posted else ()
    return "; ".join([*notes, *requested_review.report(context, payload, outcome)])


def _reviewed(
    context: JobContext,
    payload: ReviewPayload,
    ranker: Choice,
    advisor: Advisor | None,
    versions: Mapping[str, str],
) -> Outcome:
    """`versions` by subject: what becomes of the review is recorded as a use of them."""
    job = context.job
    with recorded(context.engine, job.repository_id, versions) as use:
        outcome = review_pull(
            context.github,
            job.repository,
            job.pull,
            before_write=context.check,
            head_sha=job.head_sha,
            requested=payload.requested,
            full=payload.full,
            advisor=advisor,
            learned=_learned(context),
            runner=ranker.runner(context.resources.isolation),
            limits=_limits(context),
        )
        if ranker.unreadable:
            use.failed.add(RANKER)
        use.reviewed(outcome.review, versions)
    return outcome


def _learned(context: JobContext) -> Learned:
    """What the people of the repository made of the rules until now."""
    job = context.job
    with reading(context.engine) as session:
        found = calibration.of_repository(session, job.repository_id)
    return found.learned(seed=f"{job.repository_id}#{job.pull}")


def _limits(context: JobContext) -> Limits:
    settings = context.settings
    return Limits(
        settings.max_files, settings.max_lines, settings.stranger_max_files, settings.stranger_max_lines
    )


def _follow(context: JobContext, outcome: Outcome) -> None:
    """The head is another one: see to it that it is reviewed, even if its delivery was lost."""
    job = context.job
    head = outcome.pull.head_sha if outcome.pull else job.head_sha
    if head == job.head_sha:  # it moved while we were at work, or the job is not ours any more
        pull = context.github.pull(job.repository, job.pull)
        head = pull.head_sha
        if head == job.head_sha or not pull.open:
            return
    if job.deferrals < _LAG_TRIES and _is_older(context, head):
        raise RetryLater(_LAG, "GitHub shows an older head than its webhook, or somebody pushed it again")
    leases.ensure_review(context.engine, job, head, datetime.now(timezone.utc))


def _is_older(context: JobContext, head: str) -> bool:
    """Whether the delivery of that head came before that of ours."""
    job = context.job
    same = select(Job.id).where(Job.repository_id == job.repository_id, Job.pull == job.pull)
    older = same.where(Job.kind == Kind.REVIEW.value, Job.head_sha == head, Job.created_at < job.created_at)
    with reading(context.engine) as session:
        return session.scalar(older.limit(1)) is not None
