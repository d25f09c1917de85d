"""Which files of a repository may answer questions about a change: chosen by path alone, so that nothing is read in vain."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

from ptopt.pathkind import path_kind

MOST_FILES = 40
MOST_BYTES = 200_000  # of one file
# Where programs start and loops stand: the callers of most code.
_ENTRY = re.compile(
    r"(^|_)(train|trainer|training|main|engine|run|runner|finetune|pretrain|infer|inference|eval|evaluate|test|generate|"
    r"predict|sample|demo|solver|learner|loop|pipeline|model|models|utils?)(_|$)"
)


def files_around(paths: Iterable[str], changed: Collection[str], most: int = MOST_FILES) -> list[str]:
    """At most `most` Python files that are near the changed ones or look like entry points, the likeliest first."""
    ranked = sorted(
        (rank, path)
        for path in paths
        if path.endswith(".py") and path not in changed and path_kind(path) is None
        for rank in [min((_distance(path, other) for other in changed if other.endswith(".py")), default=99)]
    )
    return [path for _, path in ranked[:most]]


def _distance(path: str, changed: str) -> float:
    """Steps from folder to folder; entry points count as nearer."""
    here, there = PurePosixPath(path).parent.parts, PurePosixPath(changed).parent.parts
    common = 0
    for ours, theirs in zip(here, there, strict=False):
        if ours != theirs:
            break
        common += 1
    steps = len(here) + len(there) - 2 * common
    entry = bool(_ENTRY.search(PurePosixPath(path).stem.lower()))
    return steps - (1.5 if entry else 0.0)
