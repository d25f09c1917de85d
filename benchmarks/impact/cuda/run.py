"""Runs the benchmarks on a GPU: three fresh processes a rule, forked from one that has loaded torch but not CUDA."""

from __future__ import annotations

import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.impact.cuda import WORKLOADS
from benchmarks.impact.cuda.measure import Sample, measure_rule
from benchmarks.impact.cuda.results import Results, Row, claims, row
from benchmarks.impact.files import MEASURED, ROOT, slug, write_claims
from ptopt.impact.ratios import PROCESSES

PATIENCE = 60.0  # seconds for one size in one process
RESULTS = ROOT / "benchmarks" / "impact" / "results"
_DIED = "the process ended without a result"
_LATE = f"no result within {PATIENCE:.0f} s"


def run(names: Iterable[str], *, write: bool, resume: bool, minutes: float) -> str | int:
    """Measure and print; an exit status, or why nothing ran."""
    if not torch.cuda.is_available():
        return "--device cuda needs a GPU"
    deadline = time.monotonic() + minutes * 60 if minutes else float("inf")
    gpu = torch.cuda.get_device_name()
    today = time.strftime("%Y-%m-%d")
    here = f"{gpu}, driver {_driver()}, torch {torch.__version__}, Python {platform.python_version()}"
    stem = slug(f"{gpu}, torch {torch.__version__}")
    file = RESULTS / f"{stem}.json"
    results = Results.read(file) if file.exists() and (resume or write) else Results(machine=here)
    chosen = set(names)
    wanted = [name for name in WORKLOADS if name in chosen and not (resume and results.whole(name))]
    print(f"{here}, {today}\n\n{'rule':32} {'gain':>8}   95 % interval  peak MB", flush=True)
    failures = left = 0
    for name in wanted:
        if time.monotonic() > deadline:
            left += 1
            continue
        rows = [row(f"{here}, {today}", *each) for each in _measured(name)]
        for each in rows:
            print(_line(name, each), flush=True)
        failures += any(each.failed for each in rows)
        if write:
            results.rules[name] = rows
            results.write(file)
            write_claims(MEASURED / f"{stem}.json", "cuda", name, claims(rows))
    print(f"\n{len(wanted) - left} rules measured, {failures} with a failure, {left} left for --resume")
    return 1 if failures else 0


def _measured(name: str) -> list[tuple[Any, str, list[Sample | str]]]:
    """(Workload, size in words, what each process found) for every size of the rule."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_preload())
    sizes = [(workload, words) for workload in WORKLOADS[name] for words in workload.sizes]
    found: list[list[Sample | str]] = [[] for _ in sizes]
    for seed in range(PROCESSES):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=measure_rule, args=(name, seed, send), daemon=True)
        process.start()
        send.close()
        for samples in found:
            samples.append(_received(receive))
            if samples[-1] in (_DIED, _LATE):
                break
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()
        receive.close()
        if any(samples and samples[-1] in (_DIED, _LATE) for samples in found):
            break  # the other processes would end as well
    return [(workload, words, samples) for (workload, words), samples in zip(sizes, found, strict=True)]


_FORKS = """
import os, sys, torch, torch._dynamo
child = os.fork()
if child == 0:
    os._exit(int(torch.cuda._is_in_bad_fork()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@cache
def _preload() -> list[str]:
    """What the processes have in common. The first optimizer loads torch._dynamo, which takes seconds: loaded before, unless
    that alone makes torch refuse CUDA in forked processes.
    """
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asks for the number of GPUs without CUDA
    modules = ["torch", "benchmarks.impact.cuda.measure"]
    asked = subprocess.run([sys.executable, "-W", "ignore", "-c", _FORKS], capture_output=True, check=False)
    return [*modules, "torch._dynamo"] if asked.returncode == 0 else modules


def _received(results: Connection) -> Sample | str:
    try:
        sample: Sample | str = results.recv() if results.poll(PATIENCE) else _LATE
    except (EOFError, OSError):
        return _DIED
    return sample


def _line(name: str, each: Row) -> str:
    if each.failed:
        return f"{name:32} failed: {each.failed}  ({each.sizes})"
    return (
        f"{name:32} {each.median:7.2f}x   {each.low:.2f}..{each.high:.2f}{'' if each.claimed else '  not claimed':13}"
        f"  {each.peak_mb[0]:,.0f} -> {each.peak_mb[1]:,.0f}  ({each.sizes})"
    )


def _driver() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    asked = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    out = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    return (out.stdout.strip().splitlines() or ["unknown"])[0]
