"""The ids of tests, and their order, depend on nothing that differs from one process to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def collect(seed: int) -> subprocess.Popen[str]:
    """Collection of all tests in a fresh process: other hashes, addresses and time."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_processes_collect_the_same() -> None:
    first, second = (collect(seed).communicate()[0].splitlines() for seed in (1, 2))
    ids = [line for line in first if "::" in line]
    assert len(ids) > 1000
    assert ids == [line for line in second if "::" in line]
    assert len(set(ids)) == len(ids)
    assert not [each for each in ids if str(ROOT) in each]
