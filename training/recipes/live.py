"""The live view of a training run: loss, speed, memory, time by phase, time left.

On a terminal a table that is redrawn in place; elsewhere a line every few seconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

PHASES = ("data", "forward", "backward", "optimizer", "other")
PAUSES = ("checkpoint", "evaluation")  # between steps; no part of their time
_QUIET = 10.0  # seconds between two lines where there is no terminal
_BARS = "▁▂▃▄▅▆▇█"


class PhaseTimer:
    """Seconds spent in each phase of a step, and in pauses. Phases nest: time counts for the innermost one, but all of
    a pause for the pause.

    On a GPU, work is queued: `wait` lets the queue run dry at each border, so that each phase is charged its own work.
    That costs a little: it is done while `exact` is set.
    """

    def __init__(self, wait: Any = None) -> None:
        self._wait = wait
        self.exact = True
        self._stack = ["other"]
        self._since = time.perf_counter()
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._paused = dict.fromkeys(PAUSES, 0.0)

    def enter(self, name: str) -> None:
        self._charge()
        self._stack.append(self._stack[-1] if self._stack[-1] in PAUSES else name)

    def leave(self) -> None:
        self._charge()
        self._stack.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def shares(self) -> dict[str, float]:
        """Share of each phase since the last call."""
        self._charge()
        total = sum(self.seconds.values()) or 1.0
        shares = {name: seconds / total for name, seconds in self.seconds.items()}
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return shares

    def pauses(self) -> dict[str, float]:
        """Seconds of each pause since the last call."""
        self._charge()
        paused, self._paused = self._paused, dict.fromkeys(PAUSES, 0.0)
        return paused

    def _charge(self) -> None:
        if self.exact and self._wait is not None:
            self._wait()
        now = time.perf_counter()
        name = self._stack[-1]
        (self._paused if name in PAUSES else self.seconds)[name] += now - self._since
        self._since = now


class LiveView:
    """Shows one line of metrics at a time; use as a context manager."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self.steps = 0  # in all, once it is known
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._losses: deque[float] = deque(maxlen=60)
        self._shown = 0.0
        self._bound = ""
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, line: dict[str, Any], bound: str) -> None:
        """line: step, loss, tokens_per_s, tokens_per_cpu_s, memory_gib, time (shares), learning_rate.

        bound: what bounds the run so far, in words.
        """
        step, now = int(line["step"]), time.monotonic()
        self._losses.append(float(line["loss"]))
        if self._first is None:
            self._first = (step, now)
        left = self._left(step, now)
        if self._live is not None:
            self._live.update(self._table(line, left, bound), refresh=True)
        elif now - self._shown >= _QUIET or step >= self.steps:
            self._shown = now
            split = " ".join(f"{name} {share:.0%}" for name, share in line["time"].items())
            self.print(
                f"step {step}/{self.steps} loss {line['loss']:.4f} {line['tokens_per_s']:,.0f} tokens/s "
                f"{line['memory_gib']:.1f} GiB, {split}, {_utilised(line)}, {left} left"
            )
            if bound != self._bound:
                self._bound = bound
                self.print(bound)

    def _left(self, step: int, now: float) -> str:
        done, started = self._first or (step, now)
        if step <= done:
            return "?"
        seconds = round((now - started) / (step - done) * max(0, self.steps - step))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _table(self, line: dict[str, Any], left: str, bound: str) -> RenderableType:
        table = Table(title=f"{self._title} · step {line['step']}/{self.steps}", show_header=False)
        table.add_column(style="dim")
        table.add_column()
        table.add_row("loss", f"{line['loss']:.4f}  {_sparkline(list(self._losses))}")
        table.add_row(
            "tokens/s", f"{line['tokens_per_s']:,.0f}  ({line['tokens_per_cpu_s']:,.0f} per CPU second)"
        )
        table.add_row("memory", f"{line['memory_gib']:.2f} GiB at most")
        table.add_row("time", " · ".join(f"{name} {share:.0%}" for name, share in line["time"].items()))
        table.add_row("device", _utilised(line))
        table.add_row("bound", Text(bound))
        table.add_row("learning rate", f"{line['learning_rate']:.2e}")
        table.add_row("left", left)
        return table


def _utilised(line: dict[str, Any]) -> str:
    return "utilisation unknown" if line["utilisation"] is None else f"{line['utilisation']:.0%} utilised"


def _sparkline(values: list[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[min(7, int((v - low) / span * 8))] for v in values)
