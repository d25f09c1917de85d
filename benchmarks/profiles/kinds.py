"""Whether a seeded bottleneck is named: on real runs of the CPU, and on simulated ones of a GPU."""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.profiles.gpu import KINDS, simulated
from ptopt.profiles.analysis import analysed
from ptopt.profiles.chrome import read_chrome
from ptopt.profiles.profile import Profile
from ptopt.profiles.reading import profile_of
from ptopt.profiles.verdict import verdict


def of_simulated(kind: str, seed: int) -> Profile:
    """The profile of a simulated GPU run."""
    data = json.dumps(simulated(kind, seed)).encode()
    return analysed(read_chrome(io.BufferedReader(io.BytesIO(data))), f"{kind}-{seed}.json")


def of_recorded(kind: str) -> Profile:
    """The profile of a run on this CPU, of `runs.SEEDED`."""
    from benchmarks.profiles import runs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.json"
        runs.record(runs.SEEDED[kind], path)
        profile = profile_of(path)
    if not isinstance(profile, Profile):
        raise TypeError(kind)
    return profile


def main(rounds: int, recorded: bool) -> None:
    print("| bottleneck | run | named right | else |\n|---|---|---|---|")
    for kind in KINDS:
        _row(kind, "simulated GPU", [verdict(of_simulated(kind, seed)).kind for seed in range(rounds)])
    if recorded:
        from benchmarks.profiles import runs

        for kind in runs.SEEDED:
            _row(kind, "CPU", [verdict(of_recorded(kind)).kind for _ in range(rounds)])


def _row(kind: str, where: str, found: list[str]) -> None:
    wrong = Counter(name for name in found if name != kind)
    others = ", ".join(f"{name} {number}" for name, number in wrong.items())
    print(f"| {kind} | {where} | {found.count(kind)} of {len(found)} | {others} |", flush=True)
