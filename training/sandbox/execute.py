"""Pairs of our own code, run in a sandboxed subprocess: kept only if they give the same and the second is faster.

Code of packages and of pull requests is never run here.
"""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FASTER = 1.05
SECONDS = 60
_RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True, slots=True)
class Pair:
    """Code that leaves what must be equal in `result`; `torch`, `nn` and `F` are in scope."""

    setup: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of running a pair; `skipped` says why nothing did."""

    executed: bool = False
    equal: bool = False
    factor: float = 0.0  # median time before, over median time after
    how: str = ""
    skipped: str = ""

    @property
    def keep(self) -> bool:
        return self.executed and self.equal and self.factor >= FASTER


def run_pair(pair: Pair, seconds: int = SECONDS) -> Outcome:
    """Run both sides in turns, in an isolated interpreter: limits on time, memory and files, no network where possible."""
    job = json.dumps({"setup": pair.setup, "before": pair.before, "after": pair.after, "seconds": seconds})
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*_no_network(), sys.executable, "-I", str(_RUNNER)],
                input=job, capture_output=True, text=True, timeout=seconds * 2, check=False, cwd=folder,
                env={"PATH": "/usr/bin:/bin", "HOME": folder, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Outcome(skipped=f"took longer than {seconds * 2} s")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Outcome(skipped=f"failed: {reason[:200]}")
    if "skipped" in answer:
        return Outcome(skipped=answer["skipped"])
    if not answer["equal"]:
        return Outcome(executed=True)
    times = answer["times"]
    factor = statistics.median(times["before"]) / max(statistics.median(times["after"]), 1e-9)
    how = f"median of {len(times['before'])} runs in turns, 1 thread, torch {answer['torch']}"
    return Outcome(True, True, round(factor, 2), how)


@functools.cache
def _no_network() -> tuple[str, ...]:
    """The command that takes the network away, where this machine lets us."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, "--map-root-user", "--net")
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else ()
