"""Simulated people of a repository: what they want, how often they err, and those who vote to do harm."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from benchmarks.learning.rows import Candidate, family_of
from feedback import wanted
from feedback.calibration import RepositoryState, state_of
from feedback.labels import Comment, Opinion, Vote, opinions, votes
from feedback.signals import SignalKind

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_ANSWERED = 0.6  # of the comments get an answer
_OVERDUE = 1_000  # votes on other rules, after which people are asked about the most doubtful finding, too
_MERGED = 0.4  # of the welcome ones: the suggestion is merged; the others get a verdict or a reaction


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    writes: bool
    errs: float  # share of the votes that say the opposite of what the person wants
    hostile: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """As `service.models.Signal`."""

    kind: str
    value: str
    actor: str
    actor_writes: bool | None
    source: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Attack:
    """`members`: share of the people who vote the opposite; `ring`: accounts of strangers that open pull requests to vote
    against everything; `ring_writes`: these may write; `poisoned`: share of the signals turned round."""

    name: str
    members: float = 0.0
    ring: int = 0
    ring_writes: bool = False
    poisoned: float = 0.0


class Repository:
    """The people of a repository, what they want, and what they did until now."""

    def __init__(
        self, number: int, candidates: Sequence[Candidate], attack: Attack, chance: random.Random
    ) -> None:
        self.number, self.attack, self.chance = number, attack, chance
        self.unwanted: frozenset[str] = frozenset()  # rules of which nothing is useful to them (any more)
        writers, strangers = chance.randint(4, 12), chance.randint(2, 6)
        self.people = [
            Person(f"p{at}", at < writers, chance.betavariate(2, 14)) for at in range(writers + strangers)
        ]
        hostile = chance.sample(self.people, round(attack.members * len(self.people)))
        self.people = [Person(p.name, p.writes, p.errs, p in hostile) for p in self.people]
        self.ring = [Person(f"ring{at}", attack.ring_writes, 0.0, True) for at in range(attack.ring)]
        self._cast: dict[tuple[str, str], list[Vote]] = {}
        self._opinions: dict[tuple[str, str], Opinion] = {}
        self._filters: defaultdict[str, wanted.RuleFilter] = defaultdict(wanted.RuleFilter)
        self._votes = 0  # of those who may write
        self._changed_at = -1  # the number of these after which the reviewer knew that minds had changed
        self.pull = 0

    def state(self) -> RepositoryState:
        """What the review knows: the same as of all votes at once, and whether minds changed."""
        estimates = {rule: rule_filter.estimate(self._votes) for rule, rule_filter in self._filters.items()}
        for rule, estimate in estimates.items():
            if self._votes - estimate.unasked <= self._changed_at:
                estimates[rule] = replace(estimate, unasked=_OVERDUE)
        return state_of(self._opinions.values(), estimates, family_of)

    def minds_changed(self) -> None:
        """The reviewer learns that minds changed, not about which rules: it asks at once about each one that is quiet, until somebody
        who may write answers."""
        self._changed_at = self._votes

    def useful(self, one: Candidate) -> bool:
        return one.useful and one.rule not in self.unwanted

    def pull_request(self, shown: Sequence[Candidate]) -> int:
        """A pull request with these comments; how many of them were answered."""
        self.pull += 1
        everybody = [*self.people, *self.ring]
        author = self.chance.choice(everybody)
        answered = 0
        here: list[Vote] = []
        for at, one in enumerate(shown):
            comment = Comment(
                self.pull * 100 + at, 0, self.number, one.rule, self.pull, one.score, author.name, _START
            )
            if author.hostile or self.chance.random() < _ANSWERED:
                who = (
                    author if author.hostile or self.chance.random() < 0.5 else self.chance.choice(everybody)
                )
                cast = votes(comment, [self._answer(who, self.useful(one))])
                for vote in cast:
                    key = (one.rule, vote.voter)
                    self._cast.setdefault(key, []).append(vote)
                    (self._opinions[key],) = opinions(self._cast[key])
                here += cast
                answered += bool(cast)
        # Whoever says something of two comments of a rule has one vote for the pull request, as in production.
        for vote in wanted.counted(here):
            self._votes += 1
            self._filters[vote.comment.rule].update(vote, self._votes)
        return answered

    def _answer(self, who: Person, useful: bool) -> Signal:
        good = (
            False
            if who in self.ring
            else not useful
            if who.hostile
            else useful != (self.chance.random() < who.errs)
        )
        if self.chance.random() < self.attack.poisoned:
            good = not good
        at = _START + timedelta(hours=self.pull, seconds=self.chance.random())
        if good and not who.hostile and self.chance.random() < _MERGED:
            return Signal(SignalKind.MERGED.value, "exact", "", None, f"sha{self.pull}", at)
        if self.chance.random() < 0.5:
            return Signal(
                SignalKind.VERDICT.value, "good" if good else "bad", who.name, who.writes, f"c{self.pull}", at
            )
        return Signal(
            SignalKind.REACTION.value, "+1" if good else "-1", who.name, who.writes, f"r{self.pull}", at
        )
