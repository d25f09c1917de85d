"""Which repositories rules are made on, thresholds set on, and the result measured on: by a hash of the name.

The parts are *work* (half of the repositories: read, tuned on), *calibrate* (a fifth: thresholds and comparisons of
models) and *judge* (the rest: opened for totals only). A repository is in one part with all its commits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path

PARTS = ("work", "calibrate", "judge")
TUNED = Path(__file__).parent / "data" / "tuned.txt"


def part_of(repository: str, tuned: Collection[str] = ()) -> str:
    """The part of "OWNER/NAME", one of PARTS. Repositories that rules were tuned on before are always work."""
    digit = int(sha256(repository.encode()).hexdigest(), 16) % 10
    return "work" if repository in tuned or digit < 5 else "calibrate" if digit < 7 else "judge"


def read_names(files: Sequence[Path]) -> frozenset[str]:
    """Names of repositories in files: one a line, or the `repo` of JSON lines."""
    lines = (line.strip() for file in files for line in file.read_text("utf-8").splitlines())
    return frozenset(
        json.loads(line)["repo"] if line.startswith("{") else line
        for line in lines
        if line and line[0] != "#"
    )
