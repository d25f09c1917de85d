"""When measured times prove a fix: they are given here, and do not depend on the machine."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from ptopt.prove.reasons import Reason, RefusedError
from ptopt.prove.session import from_times


def _answer(*, faster: float, itself: float = 1.0, noise: float = 0.02, **sides: float) -> dict[str, Any]:
    """Three processes of 50 pairs: the code before takes `faster` times as long by each clock, unless `sides` names one."""
    rng = random.Random(3)

    def logarithms(factor: float) -> list[float]:
        return [math.log(factor) + rng.gauss(0, noise) for _ in range(50)]

    rounds = [
        {name: logarithms(sides.get(name, faster)) for name in ("cpu", "wall", "whole")}
        | {"self": logarithms(itself)}
        for _ in range(3)
    ]
    return {"inputs": 40, "rounds": rounds, "sizes": "x float32[100, 80]", "torch": "2.13.0"}


def test_what_is_faster_by_all_clocks_is_proved() -> None:
    proof = from_times(_answer(faster=1.5))
    assert proof.inputs == 40 and 1.45 < proof.low <= 1.5 <= proof.high < 1.55
    assert "x float32[100, 80]" in proof.conditions and "torch 2.13.0" in proof.conditions


@pytest.mark.parametrize(
    "answer",
    [
        _answer(faster=1.0),
        _answer(faster=0.5),
        _answer(faster=1.01),
        _answer(faster=1.2, noise=1.5),  # an interval that holds 1
        _answer(faster=1.5, wall=0.9),  # waits longer than it computes less
        _answer(faster=1.5, whole=0.9),  # reading the result takes what was saved
    ],
)
def test_what_may_be_no_faster_is_not(answer: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        from_times(answer)
    assert refused.value.reason is Reason.NOT_FASTER


@pytest.mark.parametrize("itself", [1.2, 1 / 1.2])
def test_a_gain_must_exceed_what_the_code_before_shows_against_itself(itself: float) -> None:
    with pytest.raises(RefusedError, match="the machine is too busy to tell"):
        from_times(_answer(faster=1.15, itself=itself))
    assert from_times(_answer(faster=1.5, itself=itself)).low > 1.4
