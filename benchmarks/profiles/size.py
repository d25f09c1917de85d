"""CPU time and memory that `ptopt profile` takes for a large trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.profiles.gpu import kineto_text, simulated

_WIDER = 100.0  # microseconds between two copies of the pattern


@dataclass(frozen=True)
class Cost:
    """What one command took: CPU seconds, and its largest memory in MB."""

    cpu_seconds: float
    memory_mb: float


def write_large(path: Path, size: int, pattern: str, lasts: float) -> int:
    """Writes a trace of at least `size` bytes: the events of `pattern`, as Kineto lays them out, again and again, each later than
    the last. Returns the number of copies.
    """
    copies = written = 0
    times = re.compile(r'"ts": (\d+\.\d+)')
    links = re.compile(r'"correlation": (\d+)')
    with path.open("w", encoding="utf-8") as file:
        file.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "traceEvents": [\n')
        while written < size:
            shift, link = copies * (lasts + _WIDER), copies * 1_000_000
            text = times.sub(lambda m, by=shift: f'"ts": {float(m[1]) + by:.3f}', pattern)  # type: ignore[misc]
            text = links.sub(lambda m, by=link: f'"correlation": {int(m[1]) + by}', text)  # type: ignore[misc]
            written += file.write(f"{',' if copies else ''}\n{text}")
            copies += 1
        file.write('\n  ],\n  "traceName": "large.json"\n}\n')
    return copies


def of_gpu() -> tuple[str, float]:
    """Steps of a simulated GPU run and how long they last."""
    trace = simulated("host", 0, steps=40)
    return kineto_text(trace), _length(trace["traceEvents"])


def of_trace(path: Path) -> tuple[str, float]:
    """The events of a recorded trace and how long they last."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    trace["traceEvents"] = [
        {"args": {}, **event}
        for event in trace["traceEvents"]
        if event["ph"] == "X" and isinstance(event["pid"], int)
    ]
    return kineto_text(trace), _length(trace["traceEvents"])


def _length(events: Sequence[dict[str, float]]) -> float:
    return max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)


_WATCH = """\
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def cost(trace: Path) -> Cost:
    """Of `ptopt profile` on the trace, in a process of its own.

    Another one starts it: the peak of a process counts what its parent had in memory when it was started.
    """
    command = [sys.executable, "-m", "ptopt.cli", "profile", str(trace), "--format", "json"]
    done = subprocess.run([sys.executable, "-c", _WATCH, *command], stdout=subprocess.PIPE, check=True)
    code, seconds, kilobytes = json.loads(done.stdout)
    if code:
        raise subprocess.CalledProcessError(code, command)
    return Cost(seconds, kilobytes / 1024)


def main(gigabytes: float, recorded: Path | None) -> None:
    patterns: dict[str, Callable[[], tuple[str, float]]] = {"simulated GPU run": of_gpu}
    if recorded is not None:
        patterns[recorded.name] = lambda: of_trace(recorded)
    print("| trace | size | CPU seconds | memory |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in patterns.items():
            path = Path(folder) / "large.json"
            write_large(path, round(gigabytes * 1e9), *make())
            size = os.path.getsize(path)
            taken = cost(path)
            print(
                f"| {name} | {size / 1e9:.2f} GB | {taken.cpu_seconds:.1f} | {taken.memory_mb:,.0f} MB |",
                flush=True,
            )
            path.unlink()
