"""Code run in a child process that the kernel ends when it uses more processor time or memory than it may.

A limit, not a measurement: what is tested this way took minutes or gigabytes before it was bounded.
"""

from __future__ import annotations

import resource
import subprocess
import sys

CPU_SECONDS = 10
MEMORY = 1 << 30  # bytes of address space


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_limited(code: str, data: bytes) -> str:
    """What the Python code prints, `data` on its standard input; AssertionError when it fails or is ended."""
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, preexec_fn=_limit, check=False
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr.decode()}"
    return done.stdout.decode()
