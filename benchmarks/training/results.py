"""The result of one run as values, and what is computed from it: ratios, noise, a table, a plot.

Ratios are only ever taken within one run: absolute figures of two machines, or two days, do not compare.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Device = Literal["cpu", "cuda"]
NAIVE = "naive"
RECIPE = "recipe"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One variant, trained once on the same rows as the others."""

    name: str
    title: str
    changes: tuple[str, ...]  # settings that differ from the configuration
    tokens: int  # real tokens: padding not counted
    steps: int
    cpu_s: (
        float  # CPU seconds of training, of the process and its workers; the first step at the others' median
    )
    wall_s: float  # the same by wall clock
    first_s: float  # wall seconds of the first step: warm-up and compilation
    peak_mb: float  # of the process, or of the GPU's allocator, while training
    loss: float  # on held-out rows afterwards, over the labelled positions


@dataclass(frozen=True, slots=True)
class SkippedVariant:
    name: str
    title: str
    why: str


@dataclass(frozen=True, slots=True)
class Result:
    machine: str
    device: Device
    versions: dict[str, str]
    date: str
    command: str
    config: str
    base: str
    rows: int
    tokens: int
    held_out: int  # labelled positions that the loss is taken over
    base_loss: float  # of the base model, untrained, on the same positions
    measured: tuple[Measurement, ...]  # in the order of running; a name that occurs twice was run twice
    skipped: tuple[SkippedVariant, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        data: dict[str, Any] = json.loads(text)
        data["measured"] = tuple(
            Measurement(**{**m, "changes": tuple(m["changes"])}) for m in data["measured"]
        )
        data["skipped"] = tuple(SkippedVariant(**s) for s in data["skipped"])
        return cls(**data)

    def runs(self, name: str) -> list[Measurement]:
        return [m for m in self.measured if m.name == name]

    def names(self) -> list[str]:
        return list(dict.fromkeys(m.name for m in self.measured))


def rate(runs: Sequence[Measurement], clock: str) -> float:
    """Real tokens per second of `clock` ("cpu" or "wall"); the geometric mean of the runs."""
    return statistics.geometric_mean([m.tokens / getattr(m, f"{clock}_s") for m in runs])


def ratio(result: Result, name: str, clock: str, against: str = NAIVE) -> float:
    """How many times the tokens per second of `against`. nan when either was not measured."""
    ours, theirs = result.runs(name), result.runs(against)
    return rate(ours, clock) / rate(theirs, clock) if ours and theirs else math.nan


def noise(result: Result, clock: str) -> float:
    """The largest ratio between two runs of one variant, 1.0 being none; nan when nothing was run twice."""
    spreads = [
        max(rates) / min(rates)
        for name in result.names()
        if len(rates := [m.tokens / getattr(m, f"{clock}_s") for m in result.runs(name)]) > 1
    ]
    return max(spreads, default=math.nan)


def loss_noise(result: Result) -> float:
    """The largest difference of loss between two runs of one variant that differ in their seed only."""
    spreads = [
        max(losses) - min(losses)
        for name in result.names()
        if len(losses := [m.loss for m in result.runs(name)]) > 1
    ]
    return max(spreads, default=math.nan)


def as_good(result: Result) -> list[str]:
    """Variants of the recipe whose loss is not above the naive one's by more than noise, the fastest first."""
    naive = result.runs(NAIVE)
    if not naive:
        return []
    spread = loss_noise(result)
    limit = statistics.fmean(m.loss for m in naive) + (0.0 if math.isnan(spread) else spread)
    found = [
        name
        for name in result.names()
        if not name.startswith(NAIVE) and statistics.fmean(m.loss for m in result.runs(name)) <= limit
    ]
    return sorted(found, key=lambda name: -ratio(result, name, clock_of(result)))


def clock_of(result: Result) -> str:
    """CPU time is what a shared machine can measure; on a GPU only the wall clock sees the work."""
    return "cpu" if result.device == "cpu" else "wall"


def markdown(result: Result) -> str:
    """The table for people. Columns are written by what they hold, with units."""
    clock = clock_of(result)
    naive, recipe = result.runs(NAIVE), result.runs(RECIPE)
    lines = [
        f"# Training switches on {result.machine}",
        "",
        f"`{result.command}`, {result.date}. {', '.join(f'{k} {v}' for k, v in result.versions.items())}.",
        (
            f"{result.base}, `{result.config}`: {result.rows} rows, {result.tokens:,} real tokens, once. "
            f"Loss: held-out rows, {result.held_out} labelled positions; untrained it is {result.base_loss:.3f}."
        ),
        "",
        "| variant | settings | tokens per CPU s | tokens per wall s | × naive | peak MB | loss |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name in result.names():
        runs = result.runs(name)
        settings = " ".join(f"`{c}`" for c in runs[0].changes) or "–"
        times = f" (mean of {len(runs)})" if len(runs) > 1 else ""
        lines.append(
            f"| {runs[0].title}{times} | {settings} | {rate(runs, 'cpu'):,.0f} | {rate(runs, 'wall'):,.0f} "
            f"| {ratio(result, name, clock):.2f} | {max(m.peak_mb for m in runs):,.0f} "
            f"| {statistics.fmean(m.loss for m in runs):.3f} |"
        )
    lines.append("")
    if naive and recipe:
        lines += [(f"**The recipe against the naive one: {ratio(result, RECIPE, clock):.2f} ×** "
                  f"({clock} time; lowest pair {lowest(result):.2f} ×)."), ""]  # fmt: skip
    if naive:
        best = next(iter(as_good(result)), None)
        lines += [
            f"**At equal loss after equal tokens** the fastest is: {result.runs(best)[0].title}, "
            f"{ratio(result, best, clock):.2f} × the naive one."
            if best
            else "**No variant had a loss as low as the naive one's after equal tokens.**",
            "",
        ]
    if not math.isnan(noise(result, clock)):
        lines += [
            (
                f"Run twice, first and last, with another seed: the same variant differed by {noise(result, clock) - 1:.1%} "
                f"in {clock} time and by {loss_noise(result):.3f} in loss. Smaller differences say nothing."
            ),
            "",
        ]
    if result.skipped:
        lines += ["Not run here:", "", *(f"- {s.title}: {s.why}" for s in result.skipped), ""]
    return "\n".join(lines)


def lowest(result: Result) -> float:
    """The slowest run of the recipe over the fastest run of the naive one."""
    clock = clock_of(result)
    ours = min(rate([m], clock) for m in result.runs(RECIPE))
    return ours / max(rate([m], clock) for m in result.runs(NAIVE))


def plot(result: Result, file: Path) -> None:
    """Bars of tokens per second against the naive recipe, and of peak memory, one line a variant."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ptopt"  # the same result gives the same bytes
    from matplotlib import pyplot

    clock = clock_of(result)
    names = result.names()[::-1]
    titles = [result.runs(name)[0].title for name in names]
    shade = [
        "#9aa5b1" if name.startswith(NAIVE) else "#2f6f4f" if name == RECIPE else "#7fb39a" for name in names
    ]
    figure, (speed, memory) = pyplot.subplots(1, 2, sharey=True, figsize=(10, 0.6 + 0.34 * len(names)))
    speeds = speed.barh(titles, [ratio(result, name, clock) for name in names], color=shade)
    speed.bar_label(speeds, fmt="%.2f", padding=2, fontsize=8)
    speed.axvline(1, color="#444", linewidth=0.8)
    speed.set_xlabel(f"real tokens per {'CPU' if clock == 'cpu' else 'wall'} second, × naive")
    peaks = memory.barh(titles, [max(m.peak_mb for m in result.runs(n)) / 1000 for n in names], color=shade)
    memory.bar_label(peaks, fmt="%.1f", padding=2, fontsize=8)
    memory.set_xlabel("peak memory, GB")
    for axes in (speed, memory):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.12)
    figure.suptitle(f"{result.machine}, {result.date}", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
