"""Which expressions make Python wait for the GPU, measured.

A kernel that only sleeps is queued first. An expression that waits returns after the kernel has ended; one that only
queues work returns before. Each is run until its kernels, workspaces and memory are there, then measured three times;
the shortest counts.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.wait_cases import CASES, SCOPE, Case
from benchmarks.gpu.waits_table import SLEEP_MS

WARM_UP, RUNS = 3, 3


def measure() -> list[dict[str, Any]]:
    """A row for each case: `code`, `given`, `host_ms`, `waits` (None: it raised, and `error` says what)."""
    cycles = _cycles(SLEEP_MS)
    return [_row(case, cycles) for case in CASES]


def _row(case: Case, cycles: int) -> dict[str, Any]:
    row: dict[str, Any] = {"code": case.code, "given": case.given}
    try:
        host_ms = min(_milliseconds(case, cycles) for _ in range(RUNS))
    except Exception as error:  # what a case raises is a result: the next one must run
        return row | {"host_ms": None, "waits": None, "error": f"{type(error).__name__}: {error!s:.200}"}
    finally:
        torch.set_grad_enabled(True)
    return row | {"host_ms": round(host_ms, 3), "waits": host_ms > SLEEP_MS / 2}


def _milliseconds(case: Case, cycles: int) -> float:
    """Host time of `code` behind a sleeping kernel."""
    for _ in range(WARM_UP):
        _function(case)()
    run = _function(case)
    torch.cuda.synchronize()
    torch.cuda._sleep(cycles)
    start = time.perf_counter()
    run()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent * 1e3


def _function(case: Case) -> Callable[[], object]:
    """`code` as a function; scope and `given` have run, so that each run starts from fresh tensors."""
    names: dict[str, Any] = {"device": torch.device("cuda")}
    exec(
        "import copy, logging, math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn",
        names,
    )
    names["np"] = np
    torch.manual_seed(0)
    exec(SCOPE + case.given, names)
    names["held"] = None
    last = case.code.splitlines()[-1]
    keep = (
        "" if case.code != last or not _is_expression(last) else "global held\nheld = "
    )  # nothing is freed meanwhile
    exec("def run():\n" + textwrap.indent(keep + case.code, "    "), names)
    made: Callable[[], object] = names["run"]
    return made


def _is_expression(line: str) -> bool:
    try:
        compile(line, "case", "eval")
    except SyntaxError:
        return False
    return True


def _cycles(milliseconds: float) -> int:
    """Clock cycles for which the GPU sleeps that long."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)  # the clock rises
    start.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    end.synchronize()
    return round(20_000_000 * milliseconds / float(start.elapsed_time(end)))


if __name__ == "__main__":
    # Not to the standard output: the driver prints there, too.
    Path(sys.argv[1]).write_text(json.dumps(measure()), encoding="utf-8")
