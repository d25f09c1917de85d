"""Runs one pair inside the sandbox: JSON in on standard input, one line of JSON out. Started by `training.sandbox.execute`."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

MEMORY = 8 << 30
ROUNDS = 5


def _limits(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def _same(torch: Any, a: Any, b: Any) -> bool:
    if hasattr(a, "__array__") and hasattr(b, "__array__"):  # tensors and NumPy arrays
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        if a.shape != b.shape:
            return False
        return bool(
            torch.allclose(a.detach().double(), b.detach().double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        )
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(torch, x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(torch, a[k], b[k]) for k in a)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-4 + 1e-3 * abs(b)
    return type(a) is type(b) and bool(a == b)


def _timed(code: Any, names: dict[str, Any]) -> tuple[float, Any]:
    scope = dict(names)
    start = time.perf_counter()
    exec(code, scope)  # noqa: S102 - our own benchmark code, inside the sandbox
    return time.perf_counter() - start, scope.get("result")


def main(write: Callable[[str], object]) -> None:
    job = json.load(sys.stdin)
    _limits(job["seconds"])
    try:
        import torch
    except ImportError:
        write(json.dumps({"skipped": "torch is not installed"}))
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(compile(job["setup"], "setup", "exec"), names)  # noqa: S102 - see above
    before, after = (compile(job[key], key, "exec") for key in ("before", "after"))
    (_, slow), (_, fast) = _timed(before, names), _timed(after, names)
    if not _same(torch, slow, fast):
        write(json.dumps({"equal": False}))
        return
    times: dict[str, list[float]] = {"before": [], "after": []}
    for _ in range(ROUNDS):  # in turns: a busy moment of the machine meets both
        times["before"].append(_timed(before, names)[0])
        times["after"].append(_timed(after, names)[0])
    write(json.dumps({"equal": True, "times": times, "torch": torch.__version__}))


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")  # what the code prints goes elsewhere
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(answer.write)
    answer.flush()
