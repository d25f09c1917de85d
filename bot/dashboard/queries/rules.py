"""What people made of each rule in a repository, what calibration made of that, and the last weeks of all of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import NormalDist

from sqlalchemy import Integer, cast, func, select
from sqlalchemy.orm import Session

from feedback import calibration
from feedback.calibration import RuleState
from feedback.labels import Vote, label_of
from ptopt.ranker.model import threshold
from ptopt.rules import find_rule
from service.models import CommentRow

_Z = NormalDist().inv_cdf(0.975)
_WEEKS = 12


@dataclass(frozen=True, slots=True)
class Share:
    """A share of good votes with its 95 % interval (Wilson). `votes` are effective ones: a fraction each."""

    good: float
    votes: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.good / self.votes


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule in a repository. `accepted` is None before any vote; so are the two confidences, of the usual finding."""

    rule: str
    name: str
    family: str
    comments: int
    explored: int  # of them, shown although the rule was quiet
    accepted: Share | None
    people: int
    against: int
    before: float | None
    now: float | None
    quiet: bool
    explanation: str


@dataclass(frozen=True, slots=True)
class Week:
    """The comments of a week by fate. It begins on a Monday, UTC."""

    begins: date
    good: int
    bad: int
    open: int

    @property
    def comments(self) -> int:
        return self.good + self.bad + self.open


@dataclass(frozen=True, slots=True)
class RulePage:
    """`threshold` is what a comment needs where the repository sets nothing else. `weeks`: the last ones, oldest first."""

    repository_id: int
    threshold: float
    rules: tuple[RuleLine, ...]
    weeks: tuple[Week, ...]


def page(session: Session, repository_id: int, now: datetime) -> RulePage:
    """The rules that made comments in the repository, those with the most votes first."""
    cast_votes = calibration.cast_in(session, [repository_id])
    least = threshold(None)
    counts = select(CommentRow.rule, func.count(), func.sum(cast(CommentRow.explored, Integer)))
    counts = counts.where(CommentRow.repository_id == repository_id).group_by(CommentRow.rule)
    states = {state.rule: state for state in calibration.state(cast_votes).rules}
    lines = [
        _line(rule, comments, int(explored or 0), states.get(rule), least)
        for rule, comments, explored in session.execute(counts)
    ]
    lines.sort(key=lambda line: (-(line.accepted.votes if line.accepted else 0.0), -line.comments, line.rule))
    return RulePage(repository_id, least, tuple(lines), _weeks(session, repository_id, cast_votes, now))


def _weeks(
    session: Session, repository_id: int, cast_votes: Iterable[Vote], now: datetime
) -> tuple[Week, ...]:
    by_comment: defaultdict[int, list[Vote]] = defaultdict(list)
    for vote in cast_votes:
        by_comment[vote.comment.id].append(vote)
    monday = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=now.weekday())
    first = monday - timedelta(weeks=_WEEKS - 1)
    made = select(CommentRow.id, CommentRow.posted_at)
    made = made.where(CommentRow.repository_id == repository_id, CommentRow.posted_at >= first)
    fates: Counter[tuple[int, bool | None]] = Counter()
    for comment, posted_at in session.execute(made):
        fates[(posted_at - first) // timedelta(weeks=1), label_of(by_comment[comment]).good] += 1
    return tuple(
        Week((first + timedelta(weeks=at)).date(), fates[at, True], fates[at, False], fates[at, None])
        for at in range(_WEEKS)
    )


def _line(rule: str, comments: int, explored: int, state: RuleState | None, least: float) -> RuleLine:
    known = find_rule(rule)
    return RuleLine(
        rule=rule,
        name=rule if known is None else known.name,
        family="" if known is None else known.family,
        comments=comments,
        explored=explored,
        accepted=None if state is None else interval(state.good, state.votes),
        people=0 if state is None else state.people,
        against=0 if state is None else state.against,
        before=None if state is None else state.before,
        now=None if state is None else state.reached(least),
        quiet=state is not None and state.quiet(least),
        explanation="" if state is None else _sentences(state.explained(least), state.in_numbers(least)),
    )


def _sentences(*parts: str) -> str:
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)


def interval(good: float, votes: float) -> Share | None:
    """The Wilson score interval; None without votes."""
    if votes <= 0:
        return None
    share, square = good / votes, _Z**2 / votes
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return Share(good, votes, max(0.0, middle - half), min(1.0, middle + half))
