"""Measures one rule in this process: paired blocks in random order, so that drift of the machine cancels.

    python -m benchmarks.impact.measure RULE SEED

Prints one JSON object: logarithms of time(before) / time(after) per pair, by wall clock and by CPU clock, and the
same for `before` against itself.
"""

from __future__ import annotations

import json
import math
import random
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from ptopt.rules import find_rule

BLOCK = 1e-3  # seconds a block should take; a slower call is a block by itself
PAIRS = 300
SELF_PAIRS = 100
LIMIT = 3.0  # seconds of measuring at most for each comparison; slow calls get fewer pairs


class Code(Protocol):
    """What a benchmark of a rule and a workload of a GPU have in common."""

    @property
    def setup(self) -> str: ...
    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...


def compiled(
    benchmark: Code, variables: Mapping[str, Any] | None = None
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """`before` and `after` as functions over one shared set-up; each returns its `result`."""
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, **(variables or {})}
    exec(textwrap.dedent(benchmark.setup), names)

    def function(name: str, code: str) -> Callable[[], Any]:
        body = textwrap.indent(textwrap.dedent(code).strip("\n"), "    ")
        exec(f"def {name}():\n{body}\n    return result", names)
        made: Callable[[], Any] = names[name]
        return made

    return function("before", benchmark.before), function("after", benchmark.after)


def check_equal(benchmark: Code) -> None:
    """Raises AssertionError when the two sides do not compute the same."""
    assert_equal(*compiled(benchmark), rtol=1e-3, atol=1e-4)


def assert_equal(before: Callable[[], Any], after: Callable[[], Any], *, rtol: float, atol: float) -> None:
    torch.manual_seed(0)
    expected = before()
    torch.manual_seed(0)
    torch.testing.assert_close(after(), expected, rtol=rtol, atol=atol)


def pairs(
    a: Callable[[], Any], b: Callable[[], Any], count: int, rng: random.Random
) -> tuple[list[float], list[float]]:
    """Logarithms of time(a) / time(b), by wall clock and by the thread's CPU clock."""
    calls = [max(1, round(BLOCK / _once(f))) for f in (a, b)]
    wall: list[float] = []
    cpu: list[float] = []
    deadline = time.perf_counter() + LIMIT
    while len(wall) < count and (len(wall) < 5 or time.perf_counter() < deadline):
        seconds = [(0.0, 0.0), (0.0, 0.0)]
        for side in rng.sample((0, 1), 2):
            function, n = (a, b)[side], calls[side]
            w, c = time.perf_counter(), time.thread_time()
            for _ in range(n):
                function()
            seconds[side] = ((time.perf_counter() - w) / n, (time.thread_time() - c) / n)
        wall.append(math.log(seconds[0][0] / seconds[1][0]))
        if seconds[0][1] > 0 and seconds[1][1] > 0:
            cpu.append(math.log(seconds[0][1] / seconds[1][1]))
    return wall, cpu


def _once(function: Callable[[], Any]) -> float:
    function()
    start = time.perf_counter()
    function()
    return max(time.perf_counter() - start, 1e-7)


def main() -> None:
    rule = find_rule(sys.argv[1])
    if rule is None or rule.BENCHMARK is None:
        sys.exit(f"no benchmark for {sys.argv[1]}")
    torch.set_num_threads(1)
    rng = random.Random(int(sys.argv[2]))
    before, after = compiled(rule.BENCHMARK)
    for _ in range(3):
        before(), after()
    wall, cpu = pairs(before, after, PAIRS, rng)
    same, _ = pairs(before, before, SELF_PAIRS, rng)
    print(json.dumps({"wall": wall, "cpu": cpu, "self": same}))


if __name__ == "__main__":
    main()
