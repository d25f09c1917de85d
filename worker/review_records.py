"""Stores a review and its comments, and that what people do about them is to be polled."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from sqlalchemy import case, select, update
from sqlalchemy.orm import Session

import ptopt
from feedback.signals import hashed
from feedback.signals.stored_suggestion import Replacement, suggestion_hashes
from ptopt.change import Change, ChangedFile
from ptopt.findings import Finding, Review
from ptopt.github.comment import offers, suggestion
from ptopt.github.errors import SupersededError
from ptopt.github.pipeline import Outcome
from ptopt.github.post import Posted
from service import leases
from service.database import insert, writing
from service.leases import Claim
from service.models import CommentRow, Installation, Repository, ReviewRow
from service.settings import Settings
from worker import polled_pulls
from worker.job_context import JobContext

# Columns of a review about its model -> field of ptopt.findings.ModelRecord, and how much of it fits.
_OF_A_MODEL = {
    "model": ("name", 200),
    "adapter": ("adapter", 64),
    "prompt_version": ("prompt_version", 32),
    "schema_version": ("schema_version", 32),
    "model_note": ("note", 300),
}


def hash_key(settings: Settings) -> bytes:
    """The key of the hashes of people, paths and code. Raises ValueError without a secret to derive it from."""
    secret = settings.secret_key or settings.webhook_secret
    if secret is None:
        raise ValueError("PTOPT_SECRET_KEY is needed: it keys the hashes of people and code")
    return hashlib.sha256(b"ptopt hashes\0" + secret.get_secret_value().encode()).digest()


def store(context: JobContext, outcome: Outcome, ranker: str, now: datetime) -> None:
    """Store the review of `context.job`; doing it twice changes nothing. `outcome` is posted or silent.

    `ranker` is the version that ranked it, see `service.rankers`.

    Raises SupersededError when the job is not ours any more: its rows may have been deleted with the App.
    """
    job, settings = context.job, context.settings
    if outcome.review is None or outcome.change is None:
        raise ValueError(f"there is no review in an outcome that is {outcome.status}")
    posted = outcome.posted
    with writing(context.engine) as session:
        if not leases.is_ours(session.connection(), job):
            raise SupersededError("the job was taken back")
        ensure_repository(session, job, now)
        _note_opt_in(session, job.repository_id, outcome.learn)
        review_id = _review(session, job, outcome.review, ranker, posted.review_id if posted else None, now)
        if posted is None or not posted.comments:
            return
        _comments(session, job, review_id, outcome, posted, hash_key(settings), now)
        polled_pulls.active(session, job, settings, now, reopened=True)


def ensure_repository(session: Session, job: Claim, now: datetime) -> None:
    """See to it that the repository of the job has a row, under the name it has now."""
    owner = job.repository.partition("/")[0]
    installation = insert(session, Installation).values(
        id=job.installation_id, account=owner, suspended=False, created_at=now
    )
    session.execute(installation.on_conflict_do_nothing())
    add_repository(session, job.installation_id, job.repository_id, job.repository)


def _note_opt_in(session: Session, repository_id: int, learn: bool) -> None:
    """Whoever opts out is learned from no more, and what was kept for it goes."""
    of_repository = Repository.id == repository_id
    if session.scalar(select(Repository.learn).where(of_repository)) is learn:
        return
    session.execute(update(Repository).where(of_repository).values(learn=learn))
    if not learn:
        session.execute(
            update(CommentRow).where(CommentRow.repository_id == repository_id).values(features={})
        )


def add_repository(
    session: Session, installation_id: int, repository_id: int, full_name: str, *, private: bool | None = None
) -> None:
    """`private` is None where it is not known; a new row is then private."""
    row = insert(session, Repository).values(
        id=repository_id,
        installation_id=installation_id,
        full_name=full_name,
        private=True if private is None else private,
    )
    changed = {"installation_id": installation_id, "full_name": full_name}
    known = {} if private is None else {"private": private}
    session.execute(row.on_conflict_do_update(index_elements=["id"], set_=changed | known))


def _review(
    session: Session, job: Claim, review: Review, ranker: str, github_id: int | None, now: datetime
) -> int:
    values = {
        "github_id": github_id,
        "ptopt_version": ptopt.__version__,
        "files_reviewed": review.files_reviewed,
        "findings": len(review.findings) + len(review.over_limit),
    }
    key = {"repository_id": job.repository_id, "pull": job.pull, "head_sha": job.head_sha}
    model = _model(review) | {"ranker": ranker}
    row = insert(session, ReviewRow).values(
        **key, **values, **model, received_at=job.created_at, posted_at=now
    )
    # The run that posted a review decides which model and ranker it names, not a later one on the same head: people react to
    # what was posted.
    posted = ReviewRow.github_id.is_not(None)
    kept = {name: case((posted, getattr(ReviewRow, name)), else_=row.excluded[name]) for name in model}
    row = row.on_conflict_do_update(index_elements=list(key), set_=values | kept)
    session.execute(row)
    return session.scalars(select(ReviewRow.id).filter_by(**key)).one()


def _model(review: Review) -> dict[str, str]:
    if review.model is None:
        return dict.fromkeys(_OF_A_MODEL, "")
    return {column: getattr(review.model, name)[:most] for column, (name, most) in _OF_A_MODEL.items()}


def _comments(
    session: Session,
    job: Claim,
    review_id: int,
    outcome: Outcome,
    posted: Posted,
    key: bytes,
    now: datetime,
) -> None:
    change, review, pull = outcome.change, outcome.review, outcome.pull
    if change is None or review is None:
        return
    author = hashed(str(pull.author.id), key) if pull is not None and pull.author.id else ""
    rows = [
        {
            "review_id": review_id,
            "repository_id": job.repository_id,
            "pull": job.pull,
            "github_id": comment.id,
            "rule": finding.rule,
            "fingerprint": finding.fingerprint,
            "origin": finding.origin,
            "confidence": finding.confidence,
            "score": finding.confidence if finding.score is None else finding.score,
            # Words of rules and numbers, no code; only for a repository that lets us learn from it.
            "features": dict(finding.features) if outcome.learn else {},
            "explored": finding.explored,
            "author": author,
            "safety": str(finding.fix.safety) if finding.fix else "",
            "path_hash": hashed(finding.path, key),
            "suggestion": _suggestion(change, review, finding, posted, key) if offers(comment.body) else {},
            "posted_at": now,
        }
        for finding, comment in posted.comments
    ]
    # A comment that was found again keeps the row of the review that made it.
    session.execute(insert(session, CommentRow).on_conflict_do_nothing(), rows)


def _suggestion(
    change: Change, review: Review, finding: Finding, posted: Posted, key: bytes
) -> dict[str, Any]:
    file = next((file for file in change.files if file.path == finding.path), None)
    replacement = _replacement(review, file, finding)
    text = (review.sources or {}).get(finding.path)
    if replacement is None or text is None:
        return {}
    here = (
        each
        for each, comment in posted.comments
        if each.path == finding.path and each is not finding and offers(comment.body)
    )
    others = [other for each in here if (other := _replacement(review, file, each)) is not None]
    return suggestion_hashes(text, replacement, key, others)


def _replacement(review: Review, file: ChangedFile | None, finding: Finding) -> Replacement | None:
    made = suggestion(review, file, finding) if file is not None else None
    return None if made is None else Replacement(made.start, made.end, made.lines)
