"""How much what people did moves the confidence of a rule in their repository: a hierarchical Beta-Binomial.

The prior of a comment is the ranker's score. In each cell (the repository; a family in it; a rule in it) the share of good
votes has a Beta prior around the mean score of the comments that were voted on, shifted by the cells above, with the
strength of that level; the posterior mean, as a difference of log-odds, is what the cell adds. Only votes of the
repository itself count: nobody moves another one. Whether a rule is quiet is decided by `feedback.wanted`, from the votes of those
who may write alone.

The strengths are fitted to judged comments: how well do those of other commits of a repository predict one of it?
`python -m benchmarks.learning prior` fits them again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from sqlalchemy import select
from sqlalchemy.orm import Session

from feedback import wanted
from feedback.labels import Comment, Opinion, Vote, limited, opinions, per_organisation, votes
from feedback.wanted import Estimate
from ptopt.findings import Severity
from ptopt.learned import NOTHING_LEARNED, SURE, Learned, RuleFeedback, log_odds, shifted
from ptopt.rules import find_rule
from ptopt.rules.base import Rule
from service.models import CommentRow, Repository, Signal

STRENGTHS = (20.0, 40.0, 4.0)  # of the prior, in votes: of a repository, of a family, of a rule
QUIET_BELOW = 0.08  # the share of wanted comments below which a rule is quiet, whatever the threshold
# Share of the sure findings of a quiet rule that are shown all the same, and the number of votes on other rules after which people
# are asked again. All are shown, if the newest opinion is good.
EXPLORE, ASK_AFTER = 0.05, 30
FEWEST_AGAINST = 2  # people who must say so before a rule is quiet in their repository
FEWEST_AGAINST_CRITICAL = 3  # of a rule whose problems cost most
_LARGEST = 4.0  # log-odds
_NEWEST = 5_000  # comments of a repository that count
_NO_VOTES = Estimate(0.0, 0)


@dataclass(frozen=True, slots=True)
class RuleState:
    """What became of a rule in a repository, and why. `before` and `now` are of the comments that were voted on."""

    rule: str
    offset: float
    before: float
    now: float
    votes: float  # effective ones, and those of them that are good
    good: float
    people: int  # who can be named
    against: int  # of those who may write
    fewest: int  # how many it takes against the rule
    by_writers: float  # what the offset is now, by the votes of those who may write alone
    unasked: int  # their votes on other rules since the last one on this
    hopeful: bool  # is the newest opinion a good one?

    @property
    def may_quiet(self) -> bool:
        return self.against >= self.fewest

    @property
    def feedback(self) -> RuleFeedback:
        """What a review takes into account of it."""
        by_writers = self.by_writers if self.may_quiet else None
        return RuleFeedback(self.offset, by_writers, EXPLORE, self.hopeful, self.unasked / ASK_AFTER)

    @property
    def explore(self) -> float:
        """The share of its sure findings that is shown although it is quiet."""
        return NOTHING_LEARNED.explored(self.feedback, SURE)

    def quiet(self, least: float) -> bool:
        """Is the usual finding of the rule not reported, where comments need this confidence?"""
        return self.may_quiet and shifted(self.before, self.by_writers) < max(least, QUIET_BELOW)

    def reached(self, least: float) -> float:
        """The confidence of the usual finding in a review: while the rule is not quiet, votes take it to the threshold at most."""
        return self.now if self.quiet(least) else max(self.now, min(self.before, least))

    def explained(self, least: float) -> str:
        """What happened, what it means and how to change it, without the name of the rule and without a full stop."""
        voted = f"{self.people} {'person' if self.people == 1 else 'people'} voted on it here, {self.against} against it"
        if self.quiet(least):
            part = "" if self.explore > 0.995 else f"{self.explore:.0%} of "
            return (
                f"quiet here: {voted}, so its comments are no longer made, except for {part}its surest ones, "
                f"which ask whether that is still right ({self._asked}); 👍 on one of these, or a fix that is applied, counts for it"
            )
        if self.now < max(least, QUIET_BELOW):
            return (
                f"less sure here, but not quiet: {voted}; its comments are made until {self.fewest} people who may write, "
                f"and enough of their votes, are against it"
            )
        if self.offset < 0:
            effect = "fewer of its comments are made" if self.may_quiet else "those of other rules come first"
            return f"less sure here: {voted}, so {effect}; 👍 counts for it"
        return f"surer here: {voted}, so more of its comments are made; 👎 counts against it"

    def in_numbers(self, least: float) -> str:
        """The same for people who want to check it."""
        reached = self.reached(least)
        kept = f", but is kept at {reached:.2f} while the rule is not quiet" if reached > self.now else ""
        return (
            f"The confidence of its usual comment was {self.before:.2f}; all votes together make it {self.now:.2f}{kept}, those of "
            f"people who may write {shifted(self.before, self.by_writers):.2f}"
        )

    @property
    def _asked(self) -> str:
        if self.hopeful:
            return "as the newest word is a good one"
        if self.unasked >= ASK_AFTER:
            return f"as nobody was asked for {self.unasked} votes"
        return f"all of them after {ASK_AFTER - self.unasked} more votes on other rules, if it gets none until then"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Log-odds that votes add: for every finding of a repository, by family and by rule, those above included."""

    repository: float
    families: Mapping[str, float]
    rules: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """What the votes on a repository make of its rules, by id."""

    offsets: Offsets
    rules: tuple[RuleState, ...]

    def learned(self, seed: str = "") -> Learned:
        """What a review is to take into account."""
        rules = {state.rule: state.feedback for state in self.rules}
        return Learned(rules, self.offsets.families, self.offsets.repository, QUIET_BELOW, seed)


def state(cast: Iterable[Vote], family_of: Callable[[str], str] | None = None) -> RepositoryState:
    """What the votes on one repository add up to. Raises ValueError for several repositories."""
    known = tuple(cast)
    return state_of(opinions(known), wanted.estimates(known), family_of)


def state_of(
    effective: Iterable[Opinion],
    by_writers: Mapping[str, Estimate],
    family_of: Callable[[str], str] | None = None,
) -> RepositoryState:
    """What opinions on one repository add up to, and what those who may write think of each rule now. Raises
    ValueError for several repositories."""
    found = limited(effective)
    if len({opinion.repository for opinion in found}) > 1:
        raise ValueError("votes of different repositories do not belong together")
    moved = offsets(found, family_of or _family)
    by_rule: defaultdict[str, list[Opinion]] = defaultdict(list)
    for opinion in found:
        by_rule[opinion.rule].append(opinion)
    # Whoever may not write has a say in the confidence, and none in whether a rule is quiet.
    rules = tuple(
        _state(rule, cell, moved.rules[rule], by_writers.get(rule, _NO_VOTES))
        for rule, cell in sorted(by_rule.items())
    )
    return RepositoryState(moved, rules)


def offsets(
    found: Sequence[Opinion],
    family_of: Callable[[str], str],
    strengths: tuple[float, float, float] = STRENGTHS,
) -> Offsets:
    """From the repository to its families to their rules, each with the one above as its prior."""
    by_rule: defaultdict[str, list[Opinion]] = defaultdict(list)
    by_family: defaultdict[str, list[Opinion]] = defaultdict(list)
    for opinion in found:
        by_rule[opinion.rule].append(opinion)
        by_family[family_of(opinion.rule)].append(opinion)
    whole = _moved(found, 0.0, strengths[0])
    families = {name: _moved(cell, whole, strengths[1]) for name, cell in by_family.items()}
    rules = {rule: _moved(cell, families[family_of(rule)], strengths[2]) for rule, cell in by_rule.items()}
    return Offsets(whole, families, rules)


def quiet_everywhere(
    by_repository: Mapping[tuple[int, int], Sequence[RuleState]], least: float, fewest: int = 5
) -> list[str]:
    """Rules that are quiet in most of the repositories that voted on them: for maintainers to decide on, nothing more.
    Repositories come as (organisation, repository); one organisation counts as `ORGANISATION` of them at most."""
    voted = [
        ((organisation, state.rule), state.quiet(least))
        for (organisation, _), found in by_repository.items()
        for state in found
    ]
    weights = per_organisation(key for key, _ in voted)
    quiet: defaultdict[str, float] = defaultdict(float)
    whole: defaultdict[str, float] = defaultdict(float)
    for (organisation, rule), is_quiet in voted:
        whole[rule] += weights[organisation, rule]
        quiet[rule] += weights[organisation, rule] * is_quiet
    # Thirds do not add up to whole numbers.
    return sorted(rule for rule, of in whole.items() if of >= fewest - 1e-9 and quiet[rule] > 0.8 * of)


# -- the database -------------------------------------------------------------------------------------------------


def of_repository(session: Session, repository_id: int) -> RepositoryState:
    """What people made of the rules in a repository until now. One query."""
    return state(cast_in(session, [repository_id]))


def cast_in(session: Session, repository_ids: Collection[int]) -> tuple[Vote, ...]:
    """The votes on our newest comments in these repositories."""
    newest = select(CommentRow.id).where(CommentRow.repository_id.in_(list(repository_ids)))
    newest = newest.order_by(CommentRow.id.desc()).limit(_NEWEST)
    rows = session.execute(
        select(
            CommentRow,
            Repository.installation_id,
            Signal.kind,
            Signal.value,
            Signal.actor,
            Signal.actor_writes,
            Signal.source,
            Signal.created_at,
        )
        .join(Signal, Signal.comment_id == CommentRow.id)
        .join(Repository, Repository.id == CommentRow.repository_id)
        .where(CommentRow.id.in_(newest))
    )
    comments: dict[int, Comment] = {}
    signals: defaultdict[int, list[_Signal]] = defaultdict(list)
    for row, organisation, kind, value, actor, writes, source, at in rows:
        if row.id not in comments:
            comments[row.id] = as_comment(row, organisation)
        signals[row.id].append(_Signal(kind, value, actor, writes, source, at))
    return tuple(vote for at in sorted(comments) for vote in votes(comments[at], signals[at]))


@dataclass(frozen=True, slots=True)
class _Signal:
    kind: str
    value: str
    actor: str
    actor_writes: bool | None
    source: str
    created_at: datetime


def as_comment(row: CommentRow, organisation: int) -> Comment:
    """The comment of a row, as labels know it."""
    score = row.confidence if row.score is None else row.score
    return Comment(
        row.id, organisation, row.repository_id, row.rule, row.pull, score, row.author, row.posted_at
    )


# -- statistics ---------------------------------------------------------------------------------------------------


def _moved(cell: Sequence[Opinion], offset: float, strength: float) -> float:
    """`offset`, of the cells above, and what this cell adds to it."""
    total = math.fsum(opinion.weight for opinion in cell)
    if not total:
        return offset
    expected = math.fsum(o.weight * shifted(o.score, offset) for o in cell) / total
    good = math.fsum(o.weight * o.good for o in cell)
    added = log_odds((strength * expected + good) / (strength + total)) - log_odds(expected)
    return max(-_LARGEST, min(_LARGEST, offset + added))


def _state(rule: str, cell: Sequence[Opinion], offset: float, estimate: Estimate) -> RuleState:
    total = math.fsum(opinion.weight for opinion in cell)
    before = math.fsum(o.weight * o.score for o in cell) / total
    people = [o for o in cell if o.named]
    writers = [o for o in people if o.writes]
    against = sum(o.good < 0.5 for o in writers)
    known = _known(rule)
    critical = known is not None and known.severity is Severity.HIGH
    fewest = FEWEST_AGAINST_CRITICAL if critical else FEWEST_AGAINST
    good = math.fsum(o.weight * o.good for o in cell)
    # Of those who may write: a stranger would be able to bring a rule back.
    newest = max((o for o in cell if o.writes), key=lambda o: (o.at, o.voter), default=None)
    hopeful = newest is not None and newest.good > 0.5
    return RuleState(
        rule=rule,
        offset=offset,
        before=before,
        now=shifted(before, offset),
        votes=total,
        good=good,
        people=len(people),
        against=against,
        fewest=fewest,
        by_writers=estimate.offset,
        unasked=estimate.unasked,
        hopeful=hopeful,
    )


def _family(rule: str) -> str:
    known = _known(rule)
    return "" if known is None else known.family


@cache
def _known(rule: str) -> type[Rule] | None:
    return find_rule(rule)
