"""Shell and batch scripts that start Python: a review does not read their options, and says so where a change edits one."""

from __future__ import annotations

import re

from ptopt.findings import NotReviewed

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".pbs")
_STARTS = re.compile(
    rb"^[ \t]*(?:[A-Za-z_]\w*=\S*[ \t]+)*(?:(?:srun|mpirun|exec|nohup|time)[ \t]+(?:-\S+[ \t]+)*)?"
    rb"(?:python[\d.]*|torchrun|accelerate[ \t]+launch|deepspeed)[ \t]",
    re.MULTILINE,
)
_REASON = "a launch script: its options and environment are not read"


def may_launch(path: str) -> bool:
    """Is it a script of a shell or of a queue, by its name?"""
    return path.endswith(SCRIPTS)


def unread_script(path: str, head: bytes | None) -> NotReviewed | None:
    """Why the script at `path` is not reviewed; None for other files, and for scripts that start no Python."""
    if head is None or not may_launch(path) or not _STARTS.search(head):
        return None
    return NotReviewed(path, _REASON)
