"""What was measured on one GPU: all of it as a table, and what may be claimed of it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.impact.cuda.measure import Sample
from benchmarks.impact.cuda.workload import Workload
from ptopt.impact.ratios import CLAIM, PROCESSES, interval, same

_DISAGREE = " (the runs disagree)"
MEMORY_CLAIM = 1.2  # a smaller difference of the peaks is not worth a line


@dataclass(frozen=True)
class Row:
    """One size of one workload."""

    conditions: str  # machine and date
    scope: str
    sizes: str
    gain: str = "time"  # what the rule is about
    median: float = 0.0  # time(before) / time(after), with its 95 % interval
    low: float = 0.0
    high: float = 0.0
    claimed: bool = False
    ms: tuple[float, float] = (0.0, 0.0)  # a call: before, after
    peak_mb: tuple[float, float] = (0.0, 0.0)
    failed: str = ""

    @property
    def verdict(self) -> str:
        if self.failed:
            return "failed"
        if self.claimed:
            return "faster"
        return "slower" if self.high < 1 / CLAIM else "no gain"

    @property
    def unsure(self) -> bool:
        """Is there a gain in the middle that the runs do not agree on, or that `before` against itself shows, too?"""
        return not self.claimed and self.median > CLAIM

    @property
    def memory(self) -> float:
        """Peak before / peak after, inputs included."""
        return self.peak_mb[0] / self.peak_mb[1] if self.peak_mb[1] else 1.0


def row(conditions: str, workload: Workload, words: str, samples: Sequence[Sample | str]) -> Row:
    """The samples of all processes as one row."""
    good = [sample for sample in samples if isinstance(sample, Sample)]
    start = partial(Row, conditions, workload.scope, words, workload.gain)
    if len(good) < PROCESSES:
        reasons = [sample for sample in samples if isinstance(sample, str)]
        return start(failed=reasons[0] if reasons else "another size ended the process")
    median, low, high = interval([sample.wall for sample in good])
    agreed = same([sample.control for sample in good])
    before, after = zip(*(sample.seconds for sample in good), strict=True)
    peaks = zip(*(sample.peak for sample in good), strict=True)
    peak_before, peak_after = (round(max(side) / 1e6, 2) for side in peaks)
    return start(
        median=round(median, 3),
        low=round(low, 3),
        high=round(high, 3),
        claimed=agreed and low > CLAIM,
        ms=(round(statistics.median(before) * 1e3, 4), round(statistics.median(after) * 1e3, 4)),
        peak_mb=(peak_before, peak_after),
    )


def claims(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """At most one claim of time and one of memory for each scope.

    That of time goes from the lowest end of the intervals to the highest, a slowdown among them; a size of which the runs
    disagree counts as no gain. That of memory goes from the smallest figure to the largest.
    """
    found = []
    for scope in dict.fromkeys(each.scope for each in rows):
        group = [each for each in rows if each.scope == scope and not each.failed]
        if any(each.claimed for each in group):
            figures = [f"{each.sizes}: {each.median:.2f}{_DISAGREE * each.unsure}" for each in group]
            low = min(1.0 if each.unsure else each.low for each in group)
            high = max(each.high for each in group if each.claimed)
            found.append(_claim("time", low, high, group, figures))
        saved = [each.memory for each in group if each.memory >= MEMORY_CLAIM]
        if saved:
            low = min(each.memory for each in group)
            found.append(_claim("memory", low, max(saved), group, [_memory_of(each) for each in group]))
    return found


def _memory_of(each: Row) -> str:
    cost = f" in {1 / each.median:.2f} times the time" if each.verdict == "slower" else ""
    return f"{each.sizes}: {each.memory:.2f}{cost}"


def _claim(
    gain: str, low: float, high: float, group: Sequence[Row], figures: Sequence[str]
) -> dict[str, Any]:
    return {
        "gain": gain,
        # Down: a slowdown of less than one percent is one.
        "low": math.floor(low * 100) / 100 if low < 1 else round(low, 2),
        "high": round(high, 2),
        "scope": group[0].scope,
        "conditions": "; ".join([group[0].conditions, *figures]),
        "provenance": "measured",
    }


@dataclass
class Results:
    """All rows of one machine, by rule."""

    machine: str
    rules: dict[str, list[Row]] = field(default_factory=dict)

    def whole(self, rule: str) -> bool:
        """Was the rule measured, without a failure?"""
        return rule in self.rules and not any(each.failed for each in self.rules[rule])

    @classmethod
    def read(cls, file: Path) -> Results:
        data = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            data["machine"],
            {
                name: [
                    Row(**{**each, "ms": tuple(each["ms"]), "peak_mb": tuple(each["peak_mb"])})
                    for each in rows
                ]
                for name, rows in data["rules"].items()
            },
        )

    def write(self, file: Path) -> None:
        """The JSON file, and the table beside it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "machine": self.machine,
            "rules": {name: [asdict(r) for r in rows] for name, rows in self.rules.items()},
        }
        file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        file.with_suffix(".md").write_text(self.table(), encoding="utf-8")

    def table(self) -> str:
        rows = [(name, each) for name, group in self.rules.items() for each in group]
        verdicts = [each.verdict for _, each in rows]
        counted = ", ".join(f"{verdicts.count(v)} {v}" for v in ("faster", "no gain", "slower", "failed"))
        lines = [
            f"# What each rule is worth on {self.machine}",
            "",
            f"`python -m benchmarks.impact --device cuda --write`. {len(self.rules)} rules, {len(rows)} sizes: {counted}.",
            "A call in ms, and the peak of device memory during it with its inputs, before and after the advice; the factor",
            "is the median of paired blocks with its 95 % interval over three processes.",
            "",
            "| rule | of | size | ms | factor | | MB |",
            "|---|---|---|--:|--:|---|--:|",
        ]
        for name, each in rows:
            if each.failed:
                text = each.failed.replace("|", "/").replace("`", "'")
                lines.append(f"| {name} | {each.scope} | {each.sizes} | | | failed: {text} | |")
                continue
            lines.append(
                f"| {name} | {each.scope} | {each.sizes} | {each.ms[0]:.3g} → {each.ms[1]:.3g} "
                f"| {each.median:.2f} ({each.low:.2f}–{each.high:.2f}) | {each.verdict} "
                f"| {each.peak_mb[0]:,.0f} → {each.peak_mb[1]:,.0f} |"
            )
        return "\n".join(lines) + "\n"
