"""Traces for tests: made event by event, simulated, or recorded by data/train.py."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from ptopt.profiles.analysis import analysed
from ptopt.profiles.chrome import read_chrome
from ptopt.profiles.profile import Profile
from ptopt.profiles.trace import Trace

DATA = Path(__file__).parent / "data"
CODE = (DATA / "train.py").read_text(encoding="utf-8")


def buffered(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]


def read(data: bytes) -> Trace:
    return read_chrome(buffered(data))


def event(
    category: str, name: str, start: float, lasts: float, *, tid: object = 1, **args: object
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": lasts, "args": args
    }  # fmt: skip


def profile(*events: dict[str, Any], own: frozenset[str] = frozenset()) -> Profile:
    data = json.dumps({"traceEvents": list(events)}).encode()
    return analysed(read(data), "trace.json", own)


def launched(
    name: str, at: float, start: float, lasts: float, link: int, **kernel: Any
) -> list[dict[str, Any]]:
    """A kernel of stream 7, and the call that launched it at `at`."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 1.0, correlation=link),
        event(
            "kernel", name, start, lasts, tid=kernel.pop("stream", 7), correlation=link, device=0, **kernel
        ),
    ]
