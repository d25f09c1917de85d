"""Progress on the terminal: one bar a stage; where there is no terminal, one line when a stage ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Yields what a build calls: `report(stage, done, total)`."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (
        bars.TextColumn("{task.description:<22}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console) as display:
        tasks = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = display.add_task(stage, total=total)
            display.update(tasks[stage], completed=done, total=total)

        yield report


def _lines(console: Console) -> Progress:
    started = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if done == total:
            console.print(f"{stage}: {total} done, {time.monotonic() - started:.0f} s after the start")

    return report
