"""What each rule is worth on this machine.

    python -m benchmarks.impact [--device cpu|cuda] [--rule NAME ...] [--write] [--resume] [--minutes N]

For every rule with a benchmark for the device: both sides must compute the same; then three fresh processes time pairs of
blocks in random order. Prints the median of time(before) / time(after) with a 95 % bootstrap interval over processes
and pairs. A gain is claimed only when the interval's lower end is above 1.02, and `before` against itself shows none; on
a CPU, CPU time must agree on the sign. `--write` puts the claims into ptopt/impact/measured/, one file a machine; for a
GPU also all results, of no gain too, into benchmarks/impact/results/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.impact.files import MEASURED, ROOT, cpu, slug, write_claims
from benchmarks.impact.measure import check_equal
from ptopt.impact.ratios import CLAIM, PROCESSES, interval, same
from ptopt.rules import all_rules, find_rule
from ptopt.rules.base import Rule


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
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        runs.append(json.loads(out.stdout))
    median, low, high = interval([run["wall"] for run in runs])
    cpu_time = statistics.median(x for run in runs for x in run["cpu"])
    agreed = (cpu_time > 0) == (median > 1) and same([run["self"] for run in runs])
    return Gain(median, low, high, agreed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--rule", action="append", default=[], help="id or name; default: every rule with a benchmark"
    )
    parser.add_argument("--write", action="store_true", help="write the claims into the package")
    parser.add_argument("--resume", action="store_true", help="cuda: skip rules that the result file has")
    parser.add_argument("--minutes", type=float, default=0.0, help="cuda: start no further rule after this")
    options = parser.parse_args()
    rules = [find_rule(name) or sys.exit(f"no such rule: {name}") for name in options.rule] or all_rules()
    chosen = [rule for rule in rules if rule is not None]
    if options.device == "cuda":
        from benchmarks.impact.cuda.run import run

        names = {rule.name for rule in chosen}
        sys.exit(run(names, write=options.write, resume=options.resume, minutes=options.minutes))
    sys.exit(1 if _on_cpu(chosen, options.write) else 0)


def _on_cpu(rules: list[type[Rule]], write: bool) -> int:
    """Measure and print; the number of rules that failed."""
    here, today = cpu(), time.strftime("%Y-%m-%d")
    print(f"{here}, {today}\n\n{'rule':34} {'gain':>8}   95 % interval")
    failures = 0
    for rule in rules:
        if rule.BENCHMARK is None:
            continue
        try:
            check_equal(rule.BENCHMARK)
            gain = measured(rule)
        except (AssertionError, subprocess.CalledProcessError) as error:
            failures += 1
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            print(f"{rule.name:34} failed: {reason}")
            continue
        verdict = "" if gain.claimed else "  not claimed"
        print(f"{rule.name:34} {gain.median:7.2f}x   {gain.low:.2f}..{gain.high:.2f}{verdict}", flush=True)
        if gain.claimed and write:
            _write(MEASURED / f"{slug(here)}.json", rule, gain, f"{here}, {today}")
    return failures


def _write(file: Path, rule: type[Rule], gain: Gain, here: str) -> None:
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
    write_claims(file, "cpu", rule.name, [claim])


if __name__ == "__main__":
    main()
