"""Whether a new version of the ranker or the adapter, in use in a share of the repositories, is promoted, taken back, or tried longer.

Compared are the share of comments that people acted on, reviews that failed, and how long reviews took. The comparison
of the first is with the version before in the same repositories, where these have enough answers: repositories differ
more than versions do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Literal

from sqlalchemy import ColumnElement, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from feedback.calibration import as_comment
from feedback.labels import Comment, label
from service import versions
from service.models import CommentRow, Repository, ReviewRow, Signal, Version, VersionState, VersionUse

CERTAIN = 1.645  # standard errors: one-sided, 95 %
FEWEST_ANSWERS = 20  # of each version, to compare how many were good
ENOUGH_ANSWERS = 40  # of the canary, to promote it
FEWEST_USES = 20  # of each version, to compare failures and times
FEWEST_FAILURES = 3
SLOWER = 1.5  # times by which the median review is slower, and the seconds besides
SLOWER_BY = {versions.RANKER: 0.5, versions.ADAPTER: 5.0}  # the first adapter takes the time of a model
LEAST_AGE = timedelta(days=1)  # of a canary that is promoted
MOST_AGE = timedelta(days=30)  # of a canary that too few people answered
_LOOKS_BACK = timedelta(days=90)  # for what was there before
_OF_REVIEW = {versions.RANKER: ReviewRow.ranker, versions.ADAPTER: ReviewRow.adapter}
Move = Literal["wait", "promote", "roll back"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of the comments and reviews of one version."""

    good: int = 0
    answered: int = 0
    failed: int = 0
    uses: int = 0
    seconds: tuple[float, ...] = field(default=(), repr=False)  # of the reviews that did not fail

    @property
    def rate(self) -> float:
        return self.good / self.answered if self.answered else math.nan

    def figures(self) -> dict[str, Any]:
        took = round(median(self.seconds), 3) if self.seconds else None
        return {
            "good": self.good,
            "answered": self.answered,
            "failed": self.failed,
            "reviews": self.uses,
            "seconds": took,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    move: Move
    reason: str


def decide(canary: Trial, before: Trial, age: timedelta, subject: str = versions.RANKER) -> Decision:
    """What to do with a canary of this age. Harm is looked for first, and ends it at once."""
    if harm := harm_of(canary, before, SLOWER_BY[subject]):
        return Decision("roll back", harm)
    said = f"{canary.good} of {canary.answered} answered comments were good"
    if canary.answered >= ENOUGH_ANSWERS and age >= LEAST_AGE:
        return Decision("promote", f"no harm: {said}, before {before.good} of {before.answered}")
    if age >= MOST_AGE:
        return Decision("roll back", f"{said} in {age.days} days: too few to tell")
    return Decision("wait", said)


def harm_of(canary: Trial, before: Trial, slower_by: float = SLOWER_BY[versions.RANKER]) -> str:
    """Why the canary does harm, with 95 % certainty; "" when it does not."""
    if min(canary.uses, before.uses) >= FEWEST_USES:
        more = _errors_between(canary.failed, canary.uses, before.failed, before.uses)
        if canary.failed >= FEWEST_FAILURES and more > CERTAIN:
            return f"{canary.failed} of {canary.uses} reviews failed, before {before.failed} of {before.uses}"
    if min(len(canary.seconds), len(before.seconds)) >= FEWEST_USES:
        now, then = median(canary.seconds), median(before.seconds)
        if now > max(SLOWER * then, then + slower_by):
            return f"a review takes {now:.1f} s, before {then:.1f} s"
    if min(canary.answered, before.answered) >= FEWEST_ANSWERS:
        fewer = _errors_between(before.good, before.answered, canary.good, canary.answered)
        if fewer > CERTAIN:
            return (
                f"{canary.good} of {canary.answered} answered comments were good, "
                f"before {before.good} of {before.answered}"
            )
    return ""


def _errors_between(one: int, of_one: int, other: int, of_other: int) -> float:
    """By how many standard errors the first share is above the second; one success and failure is added to each."""
    p, q = (one + 1) / (of_one + 2), (other + 1) / (of_other + 2)
    return (p - q) / math.sqrt(p * (1 - p) / (of_one + 2) + q * (1 - q) / (of_other + 2))


# -- the database -------------------------------------------------------------------------------------------------


def watch(session: Session, subject: str, now: datetime) -> Decision | None:
    """Look at the canary of the subject, and move it where that is due; None without one. The event has the figures."""
    canary_is = select(Version).where(Version.subject == subject, Version.state == VersionState.CANARY.value)
    canary = session.scalars(canary_is).one_or_none()
    if canary is None:
        return None
    # Without an active version that is what the operator chose, which the canary was compared with.
    active = versions.in_use(session, subject).active or str(canary.card.get("champion", ""))
    since = canary.changed_at
    tried, before = trial(session, subject, canary.hash, since), _before(session, subject, active, canary)
    decision = decide(tried, before, now - since, subject)
    detail = {"reason": decision.reason, "canary": tried.figures(), "before": before.figures()}
    if decision.move == "promote":
        versions.promote(session, subject, now, detail)
    elif decision.move == "roll back":
        versions.roll_back(session, subject, now, detail)
    return decision


def trial(
    session: Session, subject: str, version: str, since: datetime, among: Collection[int] | None = None
) -> Trial:
    """What became of the reviews of a version since then; `among` these repositories alone."""
    good, answered = _answers(session, subject, version, since, among)
    rows = select(VersionUse.failed, VersionUse.seconds).where(
        VersionUse.subject == subject, VersionUse.version == version, VersionUse.at >= since,
        _among(VersionUse.repository_id, among),
    )  # fmt: skip
    uses = session.execute(rows).all()
    took = tuple(seconds for failed, seconds in uses if not failed)
    return Trial(good, answered, sum(failed for failed, _ in uses), len(uses), took)


def _before(session: Session, subject: str, active: str, canary: Version) -> Trial:
    """The active version: in the repositories of the canary where there is enough to compare, else in all."""
    since = canary.changed_at
    tried = select(ReviewRow.repository_id).where(
        _OF_REVIEW[subject] == canary.hash, ReviewRow.posted_at >= since
    )
    among = session.scalars(tried.distinct()).all()
    same = trial(session, subject, active, since - _LOOKS_BACK, among)
    everywhere = trial(session, subject, active, since - _LOOKS_BACK)
    answers = same if same.answered >= FEWEST_ANSWERS else everywhere
    uses = same if same.uses >= FEWEST_USES else everywhere
    return Trial(answers.good, answers.answered, uses.failed, uses.uses, uses.seconds)


def _answers(
    session: Session, subject: str, version: str, since: datetime, among: Collection[int] | None
) -> tuple[int, int]:
    """How many comments were good, of how many that people did anything about."""
    rows = (
        select(CommentRow, Repository.installation_id, Signal)
        .join(ReviewRow, ReviewRow.id == CommentRow.review_id)
        .join(Repository, Repository.id == CommentRow.repository_id)
        .join(Signal, Signal.comment_id == CommentRow.id)
        .where(_OF_REVIEW[subject] == version, CommentRow.posted_at >= since)
        .where(_among(CommentRow.repository_id, among))
    )
    comments: dict[int, Comment] = {}
    signals: defaultdict[int, list[Signal]] = defaultdict(list)
    for row, organisation, signal in session.execute(rows):
        comments[row.id] = as_comment(row, organisation)
        signals[row.id].append(signal)
    labels = [label(comment, signals[at]).good for at, comment in comments.items()]
    return sum(good is True for good in labels), sum(good is not None for good in labels)


def _among(column: InstrumentedAttribute[int], among: Collection[int] | None) -> ColumnElement[bool]:
    return true() if among is None else column.in_(list(among))
