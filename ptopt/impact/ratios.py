"""From pairs of times to one factor, and when it may be claimed."""

from __future__ import annotations

import math
import random
import statistics

PROCESSES = 3  # fresh ones, for each benchmark
CLAIM = 1.02  # what the lower end of an interval must exceed
RESAMPLES = 1000


def interval(groups: list[list[float]]) -> tuple[float, float, float]:
    """Median and 95 % interval of a ratio, from logarithms: resamples processes, then pairs within them."""
    rng = random.Random(0)  # noqa: S311 - resampling, not a secret
    medians = []
    for _ in range(RESAMPLES):
        chosen = rng.choices(groups, k=len(groups))
        medians.append(statistics.median(x for group in chosen for x in rng.choices(group, k=len(group))))
    medians.sort()
    centre = statistics.median(x for group in groups for x in group)
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return math.exp(centre), math.exp(low), math.exp(high)


def same(groups: list[list[float]]) -> bool:
    """Does a side against itself show no difference?"""
    return is_same(interval(groups))


def is_same(of: tuple[float, float, float]) -> bool:
    """Does an interval of `interval` hold no difference?"""
    _, low, high = of
    return low < CLAIM and high > 1 / CLAIM
