"""Pairs of our own code, run in a sandboxed subprocess: kept only if they give the same and the second is faster.

Code of packages and of pull requests is never run here.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ptopt.prove import sandbox

FASTER = 1.05
SECONDS = 60
_RUNNER = Path(__file__).with_name("runner.py")
_PROGRAM = f"import runpy; runpy.run_path({str(_RUNNER)!r}, run_name='__main__')"


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
    """Run both sides in turns in the sandbox of `ptopt prove`, which keeps them from what is outside where bubblewrap works."""
    job = json.dumps({"setup": pair.setup, "before": pair.before, "after": pair.after, "seconds": seconds})
    with tempfile.TemporaryDirectory() as folder:
        process = sandbox.start(
            _PROGRAM,
            cpu_seconds=seconds * 2,
            folders=[_RUNNER.parent],
            work=Path(folder),
            stderr=subprocess.PIPE,
        )
        try:
            out, errors = process.communicate(job.encode(), timeout=seconds * 2)
        except subprocess.TimeoutExpired:
            return Outcome(skipped=f"took longer than {seconds * 2} s")
        finally:
            sandbox.end(process)
    try:
        answer = json.loads(out)
    except ValueError:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = (lines or [f"exit status {process.returncode}"])[-1]
        return Outcome(skipped=f"failed: {reason[:200]}")
    if "skipped" in answer:
        return Outcome(skipped=answer["skipped"])
    if not answer["equal"]:
        return Outcome(executed=True)
    times = answer["times"]
    factor = statistics.median(times["before"]) / max(statistics.median(times["after"]), 1e-9)
    how = f"median of {len(times['before'])} runs in turns, 1 thread, torch {answer['torch']}"
    return Outcome(True, True, round(factor, 2), how)
