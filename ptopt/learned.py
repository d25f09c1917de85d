"""What the people of a repository taught about a rule: values that a review takes into account."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

FEEDBACK = "feedback in this repository"  # the name of the reason
SURE = 0.5  # the confidence from which on a finding is not doubtful
_EDGE = 1e-4
# How much less those are asked about that are less sure; and how suddenly a rule is asked about when it is due. At even intervals
# it takes fewer findings to ask about a rule within a certain time than by chance alone.
_DOUBT, _STEEP = 0.5, 16


@dataclass(frozen=True, slots=True)
class RuleFeedback:
    """`offset` is added to the log-odds of a confidence. `by_writers` is what it would be by the votes of those alone who may
    write to the repository: only where that falls below the threshold, a finding is quiet, and nowhere with None, as too few
    people said so. `explore` is the share of the quiet findings that is shown all the same where they are sure, so that the rule
    can return; with `hopeful`, as the newest word on the rule is a good one, it is all of them. `due` grows with the votes on other
    rules since the last one on this: from 1 on, people are asked about the next sure finding."""

    offset: float
    by_writers: float | None = None
    explore: float = 0.0
    hopeful: bool = False
    due: float = 0.0


@dataclass(frozen=True)
class Learned:
    """The feedback by rule (its id), by family for rules that nobody voted on, and for all others.

    `seed` tells pull requests apart: what is explored is the same on each push.
    """

    rules: Mapping[str, RuleFeedback] = field(default_factory=lambda: MappingProxyType({}))
    families: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    others: float = 0.0
    quiet_below: float = 0.0  # where people made a rule quiet, it takes so much confidence to be shown
    seed: str = ""

    def of(self, rule: str, family: str) -> RuleFeedback:
        return self.rules.get(rule) or RuleFeedback(self.families.get(family, self.others))

    def quiet(self, feedback: RuleFeedback, confidence: float, least: float) -> bool:
        """Is a finding of this confidence not worth a comment, say people? `least` is the threshold."""
        if feedback.by_writers is None:
            return False
        return shifted(confidence, feedback.by_writers) < max(least, self.quiet_below)

    def confidence(self, feedback: RuleFeedback, confidence: float, least: float) -> float:
        """The confidence with what people say of the rule. Only what is quiet falls below the threshold."""
        moved = shifted(confidence, feedback.offset)
        return moved if self.quiet(feedback, confidence, least) else max(moved, min(confidence, least))

    def explored(self, feedback: RuleFeedback, confidence: float) -> float:
        """The share of such findings that is shown although they are quiet. Doubtful ones are asked about less, and later: the
        less a finding is likely to be wanted, the longer it waits."""
        if feedback.hopeful:
            return 1.0
        sure = math.pow(min(1.0, confidence / SURE), _DOUBT)
        return min(1.0, feedback.explore * sure + math.pow(feedback.due * sure, _STEEP))

    def explores(self, fingerprint: str, share: float) -> bool:
        """Is a quiet finding among this share of them?"""
        drawn = hashlib.sha256(f"{self.seed}\0{fingerprint}".encode()).digest()
        return int.from_bytes(drawn[:4], "big") < share * 2**32

    def floor(self, least: float) -> float:
        """The confidence from which on a finding may reach `least` by feedback."""
        offsets = (*(known.offset for known in self.rules.values()), *self.families.values(), self.others)
        return shifted(least, -max(0.0, *offsets)) if least else least


NOTHING_LEARNED = Learned()


def log_odds(probability: float) -> float:
    kept = min(max(probability, _EDGE), 1 - _EDGE)
    return math.log(kept / (1 - kept))


def shifted(probability: float, offset: float) -> float:
    """The probability whose log-odds are greater by the offset."""
    return probability if not offset else 1 / (1 + math.exp(-(log_odds(probability) + offset)))
