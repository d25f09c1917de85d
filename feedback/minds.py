"""What those who may write think of a rule now, as people change their minds: a Bayesian filter over their votes.

How much more a rule is wanted than the ranker believes is an offset on the log-odds of its scores. A vote tells of the offset
by the score of its own comment: a bad word on a doubtful comment is no surprise, and moves little. After each vote in the
repository people may have changed their minds about a rule. Then what was said before counts no more, and most probably
nobody wants the rule any longer. So nothing fades with time alone: some bad votes in a row outweigh any number of older good
ones, and a rule that always found good and bad things alike is not taken for one that became unwanted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from feedback.labels import SILENCE, Vote, distinct
from ptopt.learned import log_odds

ERRS = 0.1  # share of the votes that say the opposite of what the person wants
CHANGES = 0.005  # how likely minds change about a rule, from one vote in the repository to the next
UNWANTED, UNWANTED_NOW = 0.3, 0.9  # how likely nobody wants a rule: at first, and after a change of minds
SPREAD = 2.0  # standard deviation of the offsets of the other rules, in log-odds
_OF_PERSON, _OLDER = 2, 0.3  # votes of a person on a rule that count; what the older weighs of the newer
_OFFSETS = tuple(float(at) for at in range(-8, 9))
_LOWEST, _NARROW = -6.0, 1.0  # mean and deviation of the offset of a rule that nobody wants


@dataclass(frozen=True, slots=True)
class Heard:
    """A vote of somebody who may write, and its number among all votes in the repository."""

    number: int
    vote: Vote


def heard(cast: Iterable[Vote]) -> Mapping[str, Sequence[Heard]]:
    """By rule, the oldest first, each voter once for a pull request. Silence is left out: it makes nothing quiet."""
    ordered = sorted(distinct(cast), key=lambda v: (v.at, v.comment.rule, v.comment.pull, v.voter))
    by_rule: defaultdict[str, list[Heard]] = defaultdict(list)
    for number, vote in enumerate(vote for vote in ordered if vote.kind != SILENCE):
        if vote.writes:
            by_rule[vote.comment.rule].append(Heard(number, vote))
    return by_rule


def offset(said: Sequence[Heard]) -> float:
    """The log-odds by which a usual comment of the rule is more wanted than its score says; 0 without votes."""
    weighed = [(one, weight) for one, weight in _weights(said) if weight]
    if not weighed:
        return 0.0
    belief: Sequence[float] = _AT_FIRST
    before = weighed[0][0].number
    for one, weight in weighed:
        same = (1 - CHANGES) ** (one.number - before)
        before = one.number
        likely = _likely(one.vote.comment.score, one.vote.good)
        belief = [
            (same * kept + (1 - same) * anew) * math.exp(weight * by)
            for kept, anew, by in zip(belief, _CHANGED, likely, strict=True)
        ]
        whole = math.fsum(belief)
        belief = [one / whole for one in belief]
    total = math.fsum(weight for _, weight in weighed)
    usual = math.fsum(weight * log_odds(one.vote.comment.score) for one, weight in weighed) / total
    wanted = math.fsum(share * _logistic(usual + at) for share, at in zip(belief, _OFFSETS, strict=True))
    return log_odds(wanted) - usual


def _weights(said: Sequence[Heard]) -> list[tuple[Heard, float]]:
    """What each vote weighs, so that those of one person weigh together what one does."""
    shares: list[float] = []
    seen: Counter[str] = Counter()
    for one in reversed(said):
        age = seen[one.vote.voter]
        shares.append(_OLDER**age if age < _OF_PERSON else 0.0)
        seen[one.vote.voter] += 1
    whole = {who: math.fsum(_OLDER**age for age in range(min(n, _OF_PERSON))) for who, n in seen.items()}
    return [
        (one, one.vote.weight * share / whole[one.vote.voter])
        for one, share in zip(said, reversed(shares), strict=True)
    ]


def _normal(mean: float, deviation: float) -> list[float]:
    density = [math.exp(-0.5 * ((at - mean) / deviation) ** 2) for at in _OFFSETS]
    return [one / math.fsum(density) for one in density]


def _mixed(unwanted: float) -> tuple[float, ...]:
    """How likely each offset is where nobody wants the rule with this probability."""
    both = zip(_normal(_LOWEST, _NARROW), _normal(0.0, SPREAD), strict=True)
    return tuple(unwanted * low + (1 - unwanted) * other for low, other in both)


_AT_FIRST, _CHANGED = _mixed(UNWANTED), _mixed(UNWANTED_NOW)


@lru_cache(10_000)  # comments on the same code have the same score
def _likely(score: float, good: bool) -> tuple[float, ...]:
    """The logarithm of the probability of the vote, for each offset."""
    usual = log_odds(score)
    shares = [ERRS + (1 - 2 * ERRS) * _logistic(usual + at) for at in _OFFSETS]
    return tuple(math.log(share if good else 1 - share) for share in shares)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
