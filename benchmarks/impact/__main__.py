"""What each rule is worth on this machine.

    python -m benchmarks.impact [--rule NAME ...] [--write]

For every rule with a benchmark: both sides must compute the same; then three fresh processes time 300 pairs of
blocks in random order. Prints the median of time(before) / time(after) with a 95 % bootstrap interval over processes
and pairs. A gain is claimed only when the interval's lower end is above 1.02, CPU time agrees on the sign, and `before`
against itself shows none. `--write` puts the claims into ptopt/impact/measured/, one file a machine.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.impact.measure import check_equal
from ptopt.rules import all_rules, find_rule
from ptopt.rules.base import Rule

PROCESSES = 3
CLAIM = 1.02
RESAMPLES = 1000
FOLDER = Path(__file__).resolve().parents[2] / "ptopt" / "impact" / "measured"


@dataclass(frozen=True)
class Gain:
    """time(before) / time(after), with its 95 % interval."""

    median: float
    low: float
    high: float
    agreed: bool  # CPU time has the same sign, and `before` against itself shows no gain

    @property
    def claimed(self) -> bool:
        return self.agreed and self.low > CLAIM


def measured(rule: type[Rule]) -> Gain:
    runs = []
    for seed in range(PROCESSES):
        out = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.impact.measure", rule.id, str(seed)],
            capture_output=True, text=True, check=True, cwd=FOLDER.parents[2],
        )  # fmt: skip
        runs.append(json.loads(out.stdout))
    median, low, high = interval([run["wall"] for run in runs])
    _, self_low, self_high = interval([run["self"] for run in runs])
    cpu = statistics.median(x for run in runs for x in run["cpu"])
    agreed = (cpu > 0) == (median > 1) and self_low < CLAIM and self_high > 1 / CLAIM
    return Gain(median, low, high, agreed)


def interval(groups: list[list[float]]) -> tuple[float, float, float]:
    """Median and 95 % interval of a ratio, from logarithms: resamples processes, then pairs within them."""
    rng = random.Random(0)
    medians = []
    for _ in range(RESAMPLES):
        chosen = rng.choices(groups, k=len(groups))
        medians.append(statistics.median(x for group in chosen for x in rng.choices(group, k=len(group))))
    medians.sort()
    centre = statistics.median(x for group in groups for x in group)
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return math.exp(centre), math.exp(low), math.exp(high)


def machine() -> str:
    """Processor, torch and Python, in words."""
    model = (
        re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if Path("/proc/cpuinfo").exists()
        else None
    )
    cpu = model.group(1).strip() if model else platform.processor() or platform.machine()
    return f"{cpu}, 1 thread, torch {torch.__version__}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rule", action="append", default=[], help="id or name; default: every rule with a benchmark"
    )
    parser.add_argument("--write", action="store_true", help="write the claims into the package")
    options = parser.parse_args()
    rules = [find_rule(name) or sys.exit(f"no such rule: {name}") for name in options.rule] or all_rules()
    here, today = machine(), time.strftime("%Y-%m-%d")
    print(f"{here}, {today}\n\n{'rule':34} {'gain':>8}   95 % interval")
    file = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', here.lower()).strip('-')}.json"
    failures = 0
    for rule in rules:
        if rule is None or rule.BENCHMARK is None:
            continue
        try:
            check_equal(rule.BENCHMARK)
            gain = measured(rule)
        except (AssertionError, subprocess.CalledProcessError) as error:
            failures += 1
            print(
                f"{rule.name:34} failed: {(getattr(error, 'stderr', '') or str(error)).strip().splitlines()[-1]}"
            )
            continue
        verdict = "" if gain.claimed else "  not claimed"
        print(f"{rule.name:34} {gain.median:7.2f}x   {gain.low:.2f}..{gain.high:.2f}{verdict}", flush=True)
        if gain.claimed and options.write:
            write(file, rule, gain, f"{here}, {today}")
    sys.exit(1 if failures else 0)


def write(file: Path, rule: type[Rule], gain: Gain, here: str) -> None:
    """Put one claim into the data file of this machine, beside those that are there."""
    assert rule.BENCHMARK is not None
    sizes = f"; {rule.BENCHMARK.sizes}" if rule.BENCHMARK.sizes else ""
    claim = {
        "gain": "time",
        "low": round(gain.low, 2),
        "high": round(gain.high, 2),
        "scope": rule.BENCHMARK.scope,
        "conditions": f"{here}{sizes}",
        "provenance": "measured",
    }
    file.parent.mkdir(exist_ok=True)
    known = json.loads(file.read_text(encoding="utf-8"))["gains"] if file.exists() else {}
    text = json.dumps({"gains": dict(sorted({**known, rule.name: [claim]}.items()))}, indent=2)
    file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
