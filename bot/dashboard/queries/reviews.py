"""Reviews, their comments, and what became of each comment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from bot.dashboard.queries.listing import Listing, newest
from feedback.calibration import as_comment
from feedback.labels import label
from ptopt.rules import find_rule
from service.models import CommentRow, Repository, ReviewRow, Signal

Fate = Literal["good", "bad", "open"]


@dataclass(frozen=True, slots=True)
class ReviewLine:
    """A review. `comments` were made by it, by fate; those of an earlier head are not counted again."""

    id: int
    repository_id: int
    repository: str
    pull: int
    head_sha: str
    github_id: int | None  # None: silent
    files: int
    findings: int
    model: str
    adapter: str
    model_note: str
    posted_at: datetime
    seconds: float  # from the delivery to the review
    good: int
    bad: int
    open: int

    @property
    def comments(self) -> int:
        return self.good + self.bad + self.open


@dataclass(frozen=True, slots=True)
class SignalLine:
    """What one person did, who is not named. `note` was given with `/ptopt feedback`."""

    kind: str
    value: str
    writes: bool | None
    note: str
    at: datetime


@dataclass(frozen=True, slots=True)
class CommentLine:
    """A comment of ours. `score` is the confidence before feedback."""

    github_id: int
    rule: str
    name: str  # of the rule; its id where this version knows no such rule
    origin: str
    score: float
    confidence: float
    explored: bool
    safety: str
    fate: Fate
    reason: str
    signals: tuple[SignalLine, ...]
    posted_at: datetime


@dataclass(frozen=True, slots=True)
class ReviewPage:
    review: ReviewLine
    comments: tuple[CommentLine, ...]
    earlier: bool  # an earlier head of the pull request was reviewed


def listing(session: Session, scope: Collection[int], before: int | None = None) -> Listing[ReviewLine]:
    wanted = select(ReviewRow, Repository.full_name).join(Repository)
    wanted = wanted.where(ReviewRow.repository_id.in_(scope))
    rows, more = newest(session, wanted, ReviewRow.id, before)
    comments = _comments(session, [review.id for review, _ in rows])
    lines = tuple(_line(review, name, comments[review.id]) for review, name in rows)
    return Listing(lines, lines[-1].id if more else None)


def one(session: Session, scope: Collection[int], review_id: int) -> ReviewPage | None:
    """None for a review that there is not, or not in the scope."""
    wanted = select(ReviewRow, Repository.full_name).join(Repository)
    wanted = wanted.where(ReviewRow.id == review_id, ReviewRow.repository_id.in_(scope))
    found = session.execute(wanted).first()
    if found is None:
        return None
    review, name = found
    comments = _comments(session, [review.id])[review.id]
    before = select(ReviewRow.id).where(
        ReviewRow.repository_id == review.repository_id,
        ReviewRow.pull == review.pull,
        ReviewRow.id < review.id,
    )
    earlier = session.scalar(before.limit(1)) is not None
    return ReviewPage(_line(review, name, comments), tuple(comments), earlier)


def latest(session: Session, scope: Collection[int]) -> int | None:
    """The repository of the newest review; None before there is one."""
    wanted = select(ReviewRow.repository_id).where(ReviewRow.repository_id.in_(scope))
    return session.scalar(wanted.order_by(ReviewRow.id.desc()).limit(1))


def _line(review: ReviewRow, repository: str, comments: Sequence[CommentLine]) -> ReviewLine:
    fates = Counter(comment.fate for comment in comments)
    return ReviewLine(
        id=review.id,
        repository_id=review.repository_id,
        repository=repository,
        pull=review.pull,
        head_sha=review.head_sha,
        github_id=review.github_id,
        files=review.files_reviewed,
        findings=review.findings,
        model=review.model,
        adapter=review.adapter,
        model_note=review.model_note,
        posted_at=review.posted_at,
        seconds=(review.posted_at - review.received_at).total_seconds(),
        good=fates["good"],
        bad=fates["bad"],
        open=fates["open"],
    )


def _comments(session: Session, review_ids: Sequence[int]) -> defaultdict[int, list[CommentLine]]:
    """Review -> its comments, oldest first."""
    wanted = select(CommentRow, Repository.installation_id).join(
        Repository, Repository.id == CommentRow.repository_id
    )
    wanted = wanted.where(CommentRow.review_id.in_(review_ids)).order_by(CommentRow.id)
    rows = session.execute(wanted).all()
    signals: defaultdict[int, list[Signal]] = defaultdict(list)
    ids = [row.id for row, _ in rows]
    for signal in session.scalars(select(Signal).where(Signal.comment_id.in_(ids)).order_by(Signal.id)):
        signals[signal.comment_id].append(signal)
    found: defaultdict[int, list[CommentLine]] = defaultdict(list)
    for row, organisation in rows:
        found[row.review_id].append(_comment(row, organisation, signals[row.id]))
    return found


def _comment(row: CommentRow, organisation: int, signals: Iterable[Signal]) -> CommentLine:
    said = tuple(signals)
    comment = as_comment(row, organisation)
    verdict = label(comment, said)
    rule = find_rule(row.rule)
    return CommentLine(
        github_id=row.github_id,
        rule=row.rule,
        name=row.rule if rule is None else rule.name,
        origin=row.origin,
        score=comment.score,
        confidence=row.confidence,
        explored=row.explored,
        safety=row.safety,
        fate="open" if verdict.good is None else "good" if verdict.good else "bad",
        reason=verdict.reason,
        signals=tuple(SignalLine(s.kind, s.value, s.actor_writes, s.note, s.created_at) for s in said),
        posted_at=row.posted_at,
    )
