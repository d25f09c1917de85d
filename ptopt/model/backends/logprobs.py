"""Log-odds from the log-probabilities of the most likely tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

TOP = 20  # vLLM's default limit
_Token = TypeVar("_Token")


def log_odds(top: Mapping[_Token, float], yes: _Token, no: _Token) -> float:
    """log P(yes) - log P(no), given the log-probabilities of the most likely tokens.

    An answer that is not among them is at most as likely as the last of them: what comes out is then a bound,
    and 0.0 where neither answer is among them.
    """
    least = min((p for p in top.values() if math.isfinite(p)), default=0.0)
    if yes not in top and no not in top:
        return 0.0
    return _clamped(top.get(yes, least), least) - _clamped(top.get(no, least), least)


def _clamped(value: float, least: float) -> float:
    return max(value, least) if math.isfinite(value) else least


SAID = 2.0  # log-odds of an answer whose probability is not known


def word_odds(top: Mapping[str, float]) -> float:
    """As `log_odds`, of the words yes and no however they are written, as " Yes"; what is equal adds up."""
    words: dict[str, float] = {}
    for token, value in top.items():
        word = token.strip().lower().rstrip(".,")
        if math.isfinite(value):
            words[word] = words.get(word, 0.0) + math.exp(min(value, 0.0))
    return log_odds({word: math.log(p) if p > 0 else -math.inf for word, p in words.items()}, "yes", "no")


def said_odds(text: object) -> float:
    """Of an answer in words; 0.0 for one that is neither yes nor no."""
    word = text.strip().lower().rstrip(".,!") if isinstance(text, str) else ""
    return SAID if word == "yes" else -SAID if word == "no" else 0.0
