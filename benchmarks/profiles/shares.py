"""The shares of `ptopt profile` beside those of `torch.profiler`'s own table, on real runs."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptopt.profiles.profile import Profile
from ptopt.profiles.reading import profile_of

LEAST = 0.005  # operators below this share of the steps are left out


@dataclass(frozen=True)
class Compared:
    """A share of the steps, as torch and as ptopt have it."""

    what: str
    torch: float
    ptopt: float

    @property
    def apart(self) -> float:
        return abs(self.torch - self.ptopt)


def compared(profiler: Any, profile: Profile, *, stacks: bool = False) -> Iterator[Compared]:
    """Each part of a step that the table knows by name, and each operator, with what it calls and by its own time.

    With stacks the table has a row for each function of Python, and its time is no longer that of the step or of the operator
    around it: own times cannot be compared.
    """
    table = {row.key: row for row in profiler.key_averages()}
    steps = [row for key, row in table.items() if key.startswith("ProfilerStep")]
    whole = float(sum(row.cpu_time_total for row in steps))

    def total(*starts: str) -> float:
        return float(sum(row.cpu_time_total for key, row in table.items() if key.startswith(starts))) / whole

    yield Compared("data", total("enumerate(DataLoader)#"), profile.shares["data"])
    yield Compared("optimizer", total("Optimizer.step#", "Optimizer.zero_grad#"), profile.shares["optimizer"])
    yield Compared("backward", total("autograd::engine::evaluate_function"), profile.shares["backward"])
    ours = {row.name: row for row in profile.operators}
    for key, row in table.items():
        share = row.cpu_time_total / whole
        if key in ours and share >= LEAST:
            yield Compared(f"{key}, with calls", share, ours[key].total_share)
    if stacks:
        return
    # What the table does not name: a step's own time is that in which no operator ran; the rest is forward.
    idle = sum(row.self_cpu_time_total for row in steps) / whole
    yield Compared("idle", idle, profile.shares["idle"])
    named = total("enumerate(DataLoader)#", "Optimizer.", "autograd::engine::evaluate_function")
    yield Compared("forward", 1 - idle - named, profile.shares["forward"])
    for key, row in table.items():
        share = row.self_cpu_time_total / whole
        if share >= LEAST and not key.startswith("ProfilerStep"):
            yield Compared(key, share, ours[key].self_share if key in ours else 0.0)


def recorded(name: str, *, stacks: bool = False) -> tuple[Any, Profile]:
    """A run of `runs.ORDINARY`, as torch's profiler and as ptopt's."""
    from benchmarks.profiles import runs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.json"
        profiler = runs.record(runs.ORDINARY[name], path, stacks=stacks)
        profile = profile_of(path)
    if not isinstance(profile, Profile):
        raise TypeError(name)
    return profiler, profile


def main(out: io.TextIOBase | Any = sys.stdout) -> None:
    from benchmarks.profiles import runs

    print("| run | stacks | shares compared | furthest apart | which |\n|---|---|---|---|---|", file=out)
    for name in runs.ORDINARY:
        for stacks in (False, True):
            rows = list(compared(*recorded(name, stacks=stacks), stacks=stacks))
            worst = max(rows, key=lambda row: row.apart)
            with_stacks = "yes" if stacks else "no"
            print(f"| {name} | {with_stacks} | {len(rows)} | {worst.apart:.2%} | {worst.what} |", file=out)
