"""What this machine says of itself while a run goes on: memory, cores, utilisation."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def memory_gib() -> float:
    """The peak memory of this process: of the GPU where there is one, else of main memory."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform != "darwin" else peak / 2**30


def memory_now_gib() -> float:
    """What this process holds at the moment; the most that it held, where the system does not tell."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.memory_allocated()) / 2**30
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return memory_gib()
    return pages * resource.getpagesize() / 2**30


def memory_share() -> float:
    """The peak of `memory_gib` as a share of what there is."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return memory_gib() * 2**30 / float(torch.cuda.get_device_properties(0).total_memory)
    return memory_gib() * 2**30 / (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def utilisation(cpu: float, wall: float) -> float | None:
    """Of the device: on a CPU the share of its threads' time that this process computed for `cpu` in `wall` seconds.

    On a GPU the share of the last sampling period in which a kernel ran, by NVML; None without the package for it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if not torch.cuda.is_available():
        return min(1.0, cpu / (wall * min(torch.get_num_threads(), cores()))) if wall > 0 else None
    try:
        return float(torch.cuda.utilization()) / 100
    except (ImportError, RuntimeError):  # nvidia-ml-py is not installed, or the driver does not say
        return None
