"""The command as a process of its own."""

from __future__ import annotations

import subprocess
import sys

_RUN = """\
import gc
from ptopt.cli import main
try:
    main(["--version"])
except SystemExit:
    print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_it_runs_without_cyclic_garbage_collection() -> None:
    done = subprocess.run([sys.executable, "-c", _RUN], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False True"
