"""Progress on the terminal: one bar a stage; where there is no terminal, one line when a stage ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from training.dataset.build import Progress as Report


@contextmanager
def shown() -> Iterator[Report]:
    """Yields what a build calls: `report(stage, done, total)`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        tasks = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


def _lines(console: Console) -> Report:
    started = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if done == total:
            console.print(f"{stage}: {total} done, {time.monotonic() - started:.0f} s after the start")

    return report
