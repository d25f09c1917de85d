"""What the processes of a session, and the children that they forked, use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def _of(session: int) -> Iterator[tuple[Path, list[str]]]:
    """Folder in /proc, and the fields of its `stat` from the state on."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                yield entry, fields


def memory(session: int) -> list[int]:
    """The proportional set size of each: pages that several share count once in the sum."""
    sizes = []
    for entry, _ in _of(session):
        try:
            lines = (entry / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return sizes


def processor_seconds(session: int) -> float:
    """What all have used, with those of their children that have ended."""
    return sum(sum(map(int, fields[11:15])) for _, fields in _of(session)) / _TICKS
