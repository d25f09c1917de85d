"""What the processes of a session, and the children that they forked, use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil


def _of(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                yield process
        except (psutil.Error, OSError):  # it has ended
            continue


def memory(session: int) -> list[int]:
    """The proportional set size of each in bytes: pages that several share count once in the sum."""
    sizes = []
    for process in _of(session):
        try:
            sizes.append(process.memory_full_info().pss)
        except psutil.Error:  # it has ended
            continue
    return sizes


def processor_seconds(session: int) -> float:
    """What all have used, with those of their children that have ended."""
    total = 0.0
    for process in _of(session):
        try:
            used = process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total
