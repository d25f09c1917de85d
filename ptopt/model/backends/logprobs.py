"""Log-odds from the few most likely tokens that a server tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

TOP = 20  # vLLM's default limit
_Token = TypeVar("_Token")


def log_odds(top: Mapping[_Token, float], yes: _Token, no: _Token) -> float:
    """log P(yes) - log P(no), given the log-probabilities of the most likely tokens.

    An answer that is not among them is at most as likely as the last of them: what comes out is then a bound,
    and 0.0 where the model would say neither.
    """
    least = min((p for p in top.values() if math.isfinite(p)), default=0.0)
    if yes not in top and no not in top:
        return 0.0
    return _at_least(top.get(yes, least), least) - _at_least(top.get(no, least), least)


def _at_least(value: float, least: float) -> float:
    return max(value, least) if math.isfinite(value) else least
