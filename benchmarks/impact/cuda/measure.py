"""Measures the workloads of one rule in this process, which is fresh: its CUDA context is its own."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.impact.cuda import WORKLOADS
from benchmarks.impact.cuda.workload import Workload
from benchmarks.impact.measure import assert_equal, compiled

BLOCK = 5e-3  # seconds a block should take; a slower call is a block by itself
WARM_UP = 0.04  # seconds, at least 5 calls of each side
PAIRED = 0.25  # seconds of measuring before against after
CONTROL = 0.1  # seconds of measuring before against before
FEWEST = 5  # pairs


@dataclass(frozen=True)
class Sample:
    """One size in one process."""

    wall: list[float]  # logarithms of time(before) / time(after), per pair
    control: list[float]  # the same of `before` against itself
    seconds: tuple[float, float]  # medians per call: before, after
    peak: tuple[int, int]  # bytes on the device during one call, its inputs included: before, after


def functions(
    workload: Workload, size: Mapping[str, Any], device: str
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if device == "cuda" else tensor

    return compiled(workload, {"device": device, "pinned": pinned, **size})


def check(workload: Workload, before: Callable[[], Any], after: Callable[[], Any]) -> None:
    """Raises AssertionError when the two sides do not compute the same."""
    assert_equal(before, after, rtol=workload.tolerance, atol=workload.tolerance)


def measure_rule(name: str, seed: int, results: Connection) -> None:
    """Sends a `Sample`, or the reason why there is none, for each size of each workload."""
    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    for workload in WORKLOADS[name]:
        for size in workload.sizes.values():
            try:
                results.send(_sample(workload, size, rng, equal=seed == 0))
            except Exception as error:  # a benchmark's failure must not stop the run
                results.send(f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")
            gc.collect()
            torch.cuda.empty_cache()
    results.close()


def _sample(workload: Workload, size: Mapping[str, Any], rng: random.Random, *, equal: bool) -> Sample:
    before, after = functions(workload, size, "cuda")
    if equal:
        check(workload, before, after)
    calls = _warm(before), _warm(after)
    wall, seconds = _pairs((before, after), calls, PAIRED, rng)
    control, _ = _pairs((before, before), (calls[0], calls[0]), CONTROL, rng)
    return Sample(wall, control, seconds, (_peak(before), _peak(after)))


def _warm(function: Callable[[], Any]) -> int:
    """Calls that make a block, after a warm-up."""
    deadline = time.perf_counter() + WARM_UP / 2
    done = 0
    while done < 5 or time.perf_counter() < deadline:
        function()
        done += 1
        torch.cuda.synchronize()  # no long queue of work that nobody waits for
    return max(1, round(BLOCK / _block(function, 2)))


def _block(function: Callable[[], Any], calls: int) -> float:
    """Wall seconds per call; waits of the host count."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def _pairs(
    sides: tuple[Callable[[], Any], Callable[[], Any]],
    calls: tuple[int, int],
    limit: float,
    rng: random.Random,
) -> tuple[list[float], tuple[float, float]]:
    """Logarithms of the ratios of pairs in random order, and the median time of each side."""
    times: tuple[list[float], list[float]] = [], []
    deadline = time.perf_counter() + limit
    while len(times[0]) < FEWEST or time.perf_counter() < deadline:
        for side in rng.sample((0, 1), 2):
            times[side].append(_block(sides[side], calls[side]))
    logs = [math.log(a / b) for a, b in zip(*times, strict=True)]
    return logs, (statistics.median(times[0]), statistics.median(times[1]))


def _peak(function: Callable[[], Any]) -> int:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())
