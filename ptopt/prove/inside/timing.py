"""Times two sides in pairs of blocks, by the referee's clock and the kernel's account of each process.

Each call of a block has values of its own, both sides get the same, and all results are compared afterwards: so a side
cannot gain by remembering, by skipping calls, or by changing a clock in its own process.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import torch

from ptopt.prove.inside import wire
from ptopt.prove.inside.compare import error_of, results_differ
from ptopt.prove.inside.layout import Call, case_of
from ptopt.prove.inside.process import Process

BLOCK = 5e-4  # seconds of a block
_MOST_CALLS = 24  # in a block
_LIMIT = 2.0  # seconds of one comparison; slow calls get fewer pairs
_WARM = 4  # pairs that do not count
_LEAST = 5  # pairs

Ratios = dict[str, list[float]]


class DifferentError(Exception):
    """The sides gave different results while they were timed."""


def seconds_of(process: Process, call: Call) -> float:
    """Processor time of one call, the least of three."""
    values = torch.Generator().manual_seed(0)
    found = []
    for _ in range(3):
        case = case_of(call, values)
        process.ask({**case.header("load"), "count": 1}, case.blobs)
        start = process.cpu()
        process.ask({"do": "go"})
        found.append(process.cpu() - start)
    return min(found)


def pairs(a: Process, b: Process, call: Call, seconds: float, count: int, seed: int) -> Ratios:
    """Logarithms of time(a) / time(b): of the wall, of processor time, and of that with sending the results.

    `seconds` is what a call of `a` takes.
    """
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    values = torch.Generator().manual_seed(seed)
    calls = min(max(1, round(BLOCK / max(seconds, 1e-6))), _MOST_CALLS)
    ratios: Ratios = {"wall": [], "cpu": [], "whole": []}
    end = time.monotonic() + _LIMIT
    for number in range(-_WARM, count):
        if number >= _LEAST and time.monotonic() > end:
            break
        cases = [case_of(call, values) for _ in range(calls)]
        blobs = [blob for case in cases for blob in case.blobs]
        header: dict[str, Any] = {**cases[0].header("load"), "count": calls}
        taken: dict[int, tuple[float, float, float]] = {}
        results: dict[int, wire.Message] = {}
        for side in chance.sample((0, 1), 2):
            process = (a, b)[side]
            process.ask(header, blobs)
            cpu, wall = process.cpu(), time.perf_counter()
            answer = process.ask({"do": "go"})
            wall = time.perf_counter() - wall
            used = process.cpu() - cpu
            if error_of(answer):
                raise DifferentError(f"raises {error_of(answer)}")
            results[side] = process.ask({"do": "results"})
            taken[side] = (wall, used, process.cpu() - cpu)
        found = results_differ(results[0], results[1], calls, call.tensors)
        if found:
            raise DifferentError(found)
        if number < 0:
            continue
        for name, x, y in zip(ratios, taken[0], taken[1], strict=True):
            ratios[name].append(math.log(max(x, 1e-9) / max(y, 1e-9)))
    return ratios
