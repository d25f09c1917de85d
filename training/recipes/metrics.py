"""The metrics of a run, a line every few steps: speed, memory, where the time went, what bounds the run."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from transformers import TrainerCallback

from training.recipes.bottleneck import figures_of, verdict
from training.recipes.live import LiveView
from training.recipes.machine import cores, memory_gib, memory_now_gib, memory_share, utilisation
from training.recipes.settings import Settings
from training.recipes.tracking import Tracker

_RECENT = 20  # lines that the verdict of the live view is about


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """A line of metrics at each logging step, to the view and to the tracker, from the first process."""

    def __init__(
        self, trainer: Any, settings: Settings, view: LiveView | None, tracker: Tracker | None
    ) -> None:
        self._trainer, self._settings, self._view, self._tracker = trainer, settings, view, tracker
        self._at = self._started = (time.perf_counter(), time.process_time(), 0, 0)
        self._lines: deque[dict[str, Any]] = deque(maxlen=_RECENT)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._at = self._started = self._now()
        self._trainer.clock.shares()
        self._trainer.clock.pauses()
        if self._view is not None:
            self._view.steps = state.max_steps

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.clock.enter("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._trainer.clock.leave()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.logging_steps > 1 and (state.global_step + 1) % args.logging_steps == 0:
            self._trainer.clock.exact = True  # for the logged step alone
            self._trainer.clock.shares()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        if "eval_loss" in logs and self._tracker is not None:
            self._tracker.log({"step": state.global_step, "eval_loss": logs["eval_loss"]})
        if "loss" not in logs:
            return
        now = self._now()
        wall, cpu, tokens, positions = (after - before for after, before in zip(now, self._at, strict=True))
        self._at = now
        workers = args.world_size  # each counts its own tokens; they share the rows evenly
        line = {
            "step": state.global_step,
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            **({"grad_norm": logs["grad_norm"]} if "grad_norm" in logs else {}),
            "seconds": round(wall, 4),
            "tokens": now[2] * workers,
            "tokens_per_s": tokens * workers / wall,
            "tokens_per_cpu_s": tokens / cpu,
            "memory_gib": round(memory_gib(), 3),
            "memory_now_gib": round(memory_now_gib(), 3),
            "memory_share": round(memory_share(), 4),
            "padding": round(1 - tokens / positions, 4) if positions else 0.0,
            "utilisation": None if (used := utilisation(cpu, wall)) is None else round(used, 4),
            "cuda": args.device.type == "cuda",
            "cores": cores(),
            "time": {name: round(share, 4) for name, share in self._trainer.clock.shares().items()},
            "pauses": {name: round(s, 4) for name, s in self._trainer.clock.pauses().items()},
        }
        self._lines.append(line)
        self._trainer.clock.exact = args.logging_steps <= 1
        if self._tracker is not None:
            self._tracker.log(line)
        if self._view is not None:
            self._view.update(line, str(verdict(figures_of(list(self._lines)), self._settings)))

    def totals(self) -> dict[str, Any]:
        """Of this session: seconds, tokens, tokens per second and per CPU second."""
        wall, cpu, tokens, _ = (
            after - before for after, before in zip(self._now(), self._started, strict=True)
        )
        workers = self._trainer.args.world_size
        return {
            "seconds": round(wall, 1),
            "tokens": tokens * workers,
            "tokens_per_s": round(tokens * workers / wall, 1),
            "tokens_per_cpu_s": round(tokens / cpu, 1),
            "memory_gib": round(memory_gib(), 2),
        }

    def _now(self) -> tuple[float, float, int, int]:
        return time.perf_counter(), time.process_time(), self._trainer.tokens, self._trainer.positions
