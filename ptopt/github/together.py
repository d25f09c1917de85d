"""Reads that do not wait for each other, over the connections of one client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 6  # GitHub asks its clients not to send much at once


def threads() -> ThreadPoolExecutor:
    """Threads for a block of reads, which ends when all of them have ended. Writes go out one by one, without it."""
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="read")
