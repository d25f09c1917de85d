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
