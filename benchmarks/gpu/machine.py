"""The GPU, and what it does at most: the ceilings that every other figure is held against."""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

VERSIONS = ("torch", "triton", "transformers", "trl", "peft", "accelerate", "bitsandbytes")
_SIDE = 8192  # of the square matrices of the product
_COPIED = 1 << 32  # bytes of the copy, far beyond any cache
_RUNS = 20


def measure() -> dict[str, Any]:
    """Name, driver, versions, TFLOP/s of a bf16 and a TF32 product, GB/s of a copy on the device and of one to it."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return {
        "gpu": torch.cuda.get_device_name(),
        "memory_gb": round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1),
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "versions": {name: found for name in VERSIONS if (found := _version(name))},
        "bf16_tflops": round(_product(torch.bfloat16), 1),
        "tf32_tflops": round(_product(torch.float32), 1),
        "copy_gb_s": round(_copy(), 1),
        "upload_pinned_gb_s": round(_upload(pinned=True), 1),
        "upload_pageable_gb_s": round(_upload(pinned=False), 1),
    }


def seconds(call: Callable[[], object], runs: int = _RUNS) -> float:
    """The median of `runs` calls by device events, after two that do not count."""
    for _ in range(2):
        call()
    found = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return float(statistics.median(found))


def _product(dtype: torch.dtype) -> float:
    a, b = (torch.randn(_SIDE, _SIDE, device="cuda", dtype=dtype) for _ in range(2))
    return float(2 * _SIDE**3 / seconds(lambda: a @ b) / 1e12)


def _copy() -> float:
    source = torch.empty(_COPIED // 2, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return float(2 * source.numel() / seconds(lambda: target.copy_(source)) / 1e9)


def _upload(pinned: bool) -> float:
    source = torch.ones(1 << 28, dtype=torch.uint8, pin_memory=pinned)
    target = torch.empty_like(source, device="cuda")
    return float(source.numel() / seconds(lambda: target.copy_(source, non_blocking=True), 5) / 1e9)


def _driver() -> str:
    out = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return out.stdout.strip().splitlines()[0] if out.returncode == 0 and out.stdout.strip() else "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    import json

    json.dump(measure(), sys.stdout)
