"""What those who may write think of a rule now, as people change their minds: a Bayesian filter over their votes.

How much more a rule is wanted than the ranker believes is an offset on the log-odds of its scores. A vote is evidence of the offset
by the score of its own comment: a bad word on a doubtful comment is no surprise, and moves little.

Between any two votes people may have changed their minds about a rule. So the filter keeps several hypotheses: one for each vote
before which that may have happened last, and the one in which it never did. In a hypothesis only the votes since then
count, all votes of a person together as one, and after a change most probably nobody wants the rule any longer. The better a
hypothesis predicted the votes, the likelier it is (Bayesian online change point detection, Adams and MacKay, arXiv 0710.3742).

So nothing fades with time alone: some bad votes in a row outweigh any number of older good ones, and a rule that always found
good and bad things alike is not taken for one that became unwanted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nlargest
from operator import attrgetter, mul

from feedback.labels import SILENCE, Vote, distinct
from ptopt.learned import log_odds

ERRS = 0.1  # share of the votes that say the opposite of what the person wants
CHANGES = 0.02  # how likely minds change about a rule, from one vote in the repository to the next
UNWANTED, UNWANTED_NOW = 0.2, 0.85  # how likely nobody wants a rule: at first, and after a change of minds
SPREAD = 2.0  # standard deviation of the offsets of the other rules, in log-odds
REPEATED = 0.6  # the weight of a vote as evidence of a change, of that of the person's last one, if both say the same
_OFFSETS = tuple(float(at) for at in range(-8, 9))  # in log-odds; a belief has one probability for each
_LOWEST, _NARROW = -6.0, 1.0  # mean and deviation of the offset of a rule that nobody wants
# The likeliest hypotheses that are kept of a rule: so a vote takes the same time, however many came before.
_HYPOTHESES = 12


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a rule. `offset`: the log-odds by which a usual comment of it is more wanted than its score says.
    `unasked`: the votes of those who may write, on other rules, since the last one on this rule."""

    offset: float
    unasked: int


def estimates(cast: Iterable[Vote]) -> Mapping[str, Estimate]:
    """What is known of each rule after the votes on one repository, in whatever order they come."""
    now = 0
    filters: defaultdict[str, RuleFilter] = defaultdict(RuleFilter)
    for vote in counted(cast):
        now += 1
        filters[vote.comment.rule].update(vote, now)
    return {rule: rule_filter.estimate(now) for rule, rule_filter in filters.items()}


def counted(cast: Iterable[Vote]) -> list[Vote]:
    """The votes of those who may write, the oldest first, each voter once for a rule and pull request. Silence is left
    out: it makes nothing quiet. So are strangers: they would make time go by."""
    ordered = sorted(distinct(cast), key=lambda v: (v.at, v.comment.rule, v.comment.pull, v.voter))
    return [vote for vote in ordered if vote.writes and vote.kind != SILENCE]


class RuleFilter:
    """The filter of one rule: it takes the votes one by one."""

    def __init__(self) -> None:
        self._hypotheses: list[_Hypothesis] = []
        self._last = 0  # the number of the newest vote, among all in the repository
        # By voter: what the newest vote said, and its weight as evidence of a change.
        self._newest: dict[str, tuple[bool, float]] = {}
        self._offset: float | None = None  # where it is known
        self._weight = self._weighted = 0.0  # of the votes; and times the log-odds of the score

    def update(self, vote: Vote, number: int) -> None:
        """The next vote, and its number among all in the repository: they grow."""
        likely, log_likely = _likely(vote.comment.score, vote.good)
        if not self._hypotheses:
            self._hypotheses = [_Hypothesis(1.0, _AT_FIRST)]
        else:
            changed = 1 - (1 - CHANGES) ** (number - self._last)
            for hypothesis in self._hypotheses:
                hypothesis.probability *= 1 - changed
            self._hypotheses.append(_Hypothesis(changed, _CHANGED))
        evidence = vote.weight * self._evidence(vote)
        for hypothesis in self._hypotheses:
            hypothesis.update(vote, likely, log_likely, evidence)
        self._hypotheses = nlargest(_HYPOTHESES, self._hypotheses, key=attrgetter("probability"))
        whole = math.fsum(hypothesis.probability for hypothesis in self._hypotheses)
        for hypothesis in self._hypotheses:
            hypothesis.probability /= whole
        self._last = number
        self._weight += vote.weight
        self._weighted += vote.weight * log_odds(vote.comment.score)
        self._offset = None

    def estimate(self, now: int) -> Estimate:
        """What is known of the rule after so many votes in the repository; at least one was counted."""
        if self._offset is None:
            self._offset = self._found()
        return Estimate(self._offset, now - self._last)

    def _found(self) -> float:
        usual = self._weighted / self._weight
        likely = [_logistic(usual + at) for at in _OFFSETS]
        wanted = math.fsum(
            hypothesis.probability * _expected(hypothesis.belief, likely) for hypothesis in self._hypotheses
        )
        return log_odds(wanted) - usual

    def _evidence(self, vote: Vote) -> float:
        """Its weight as evidence of a change: the less, the more often its voter said the same before."""
        said, evidence = self._newest.get(vote.voter, (not vote.good, 0.0))
        evidence = evidence * REPEATED if said == vote.good else 1.0
        self._newest[vote.voter] = (vote.good, evidence)
        return evidence


@dataclass(slots=True)
class _Hypothesis:
    """That minds changed last before a certain vote. `probability`: how likely that is. `belief`: how likely each offset is, if
    so."""

    probability: float
    belief: Sequence[float]
    _said: Sequence[float] = ()  # the logarithm of the belief, plus a constant
    _of_voter: dict[str, tuple[int, Sequence[float]]] = field(default_factory=dict)  # votes, and their mean

    def update(
        self, vote: Vote, likely: Sequence[float], log_likely: Sequence[float], evidence: float
    ) -> None:
        """`likely` is the probability of the vote, for each offset; `evidence`, its weight for or against the hypothesis."""
        self.probability *= _expected(self.belief, likely) ** evidence
        number, before = self._of_voter.get(vote.voter, (0, _NOTHING))
        new, old = vote.weight / (number + 1), number / (number + 1)
        mean = [old * was + new * log for was, log in zip(before, log_likely, strict=True)]
        self._of_voter[vote.voter] = number + 1, mean
        said = self._said or [math.log(p) for p in self.belief]
        self._said = [whole - was + now for whole, was, now in zip(said, before, mean, strict=True)]
        most = max(self._said)
        shares = [math.exp(log - most) for log in self._said]
        whole = sum(shares)
        self.belief = [share / whole for share in shares]


def _expected(belief: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(map(mul, belief, values))


def _normal(mean: float, deviation: float) -> list[float]:
    density = [math.exp(-0.5 * ((at - mean) / deviation) ** 2) for at in _OFFSETS]
    return [one / math.fsum(density) for one in density]


def _mixed(unwanted: float) -> tuple[float, ...]:
    """How likely each offset is where nobody wants the rule with this probability."""
    both = zip(_normal(_LOWEST, _NARROW), _normal(0.0, SPREAD), strict=True)
    return tuple(unwanted * low + (1 - unwanted) * other for low, other in both)


_AT_FIRST, _CHANGED = _mixed(UNWANTED), _mixed(UNWANTED_NOW)
_NOTHING = (0.0,) * len(_OFFSETS)


@lru_cache(10_000)  # comments on the same code have the same score
def _likely(score: float, good: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The probability of the vote for each offset, and its logarithm."""
    usual = log_odds(score)
    good_by = [ERRS + (1 - 2 * ERRS) * _logistic(usual + at) for at in _OFFSETS]
    likely = tuple(share if good else 1 - share for share in good_by)
    return likely, tuple(map(math.log, likely))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
