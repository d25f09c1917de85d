"""Some steps of a run as a trace for `ptopt profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule, supported_activities
from transformers import TrainerCallback

NAME = "trace.json.gz"


class TraceCallback(TrainerCallback):  # type: ignore[misc]
    """Records `steps` steps of the first process, from the third of the session on, with stacks; where the run ends before, what
    there is."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self._profiler: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        devices = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        self._profiler = profile(
            activities=[device for device in devices if device in supported_activities()],
            schedule=schedule(wait=1, warmup=1, active=self._steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(self._folder / NAME)),
            with_stack=True,
        )
        self._profiler.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._profiler is not None:
            self._profiler.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
