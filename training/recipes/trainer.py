"""What both recipes add to a TRL trainer: timing by phase, complete checkpoints, and a stop that keeps the work."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils.memory import should_reduce_batch_size
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, get_scheduler

from training.recipes.live import PhaseTimer
from training.recipes.run import Run
from training.recipes.settings import Settings

if TYPE_CHECKING:
    Base = Any
else:
    Base = object
Result = TypeVar("Result")
# The steps that fit into the minutes are counted from so many steps, and such a share of the minutes, to be on the safe side
_SAMPLED, _SHARE, _CAREFUL = 3, 0.05, 0.95


class TrainerMixin(Base):  # type: ignore[misc,unused-ignore]
    """A mixin for trainers: put it before the trainer's class. `attach` before `train`."""

    def attach(self, run: Run, keep: int) -> None:
        self.run, self.keep = run, keep
        self.planned = run.planned_steps()
        self.lr_scheduler: Any
        self.clock = PhaseTimer(torch.cuda.synchronize if torch.cuda.is_available() else None)
        self.tokens = 0
        self.positions = 0  # tokens and padding

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("data"):
            return super().get_batch_samples(*args, **kwargs)

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.tokens += real_tokens(inputs)
        self.positions += inputs["attention_mask" if "attention_mask" in inputs else "position_ids"].numel()
        with self.clock.phase("backward"):  # what of it is forward is charged there
            return super().training_step(model, inputs, *args, **kwargs)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("forward"):
            return super().compute_loss(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase("evaluation"):
            return super().evaluate(*args, **kwargs)

    def _clip_grad_norm(self, model: Any) -> Any:
        with self.clock.phase("optimizer"):
            return super()._clip_grad_norm(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The schedule of `learning_rate`, from the step of a plan on that of the plan."""
        if self.lr_scheduler is None:
            whole = learning_rate(self.args, num_training_steps)
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self._with_plan(whole))
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def plan(self, steps: int) -> None:
        """End after so many steps in all, in this session and in those that resume it, at a rate of nearly 0."""
        self.planned = (steps, self.state.global_step + 1)  # the rate of the next step is set already
        self.state.max_steps = steps
        self.lr_scheduler.lr_lambdas = [self._with_plan(rate) for rate in self.lr_scheduler.lr_lambdas]
        if self.args.should_save:
            self.run.plan_steps(*self.planned)

    def _with_plan(self, whole: Callable[[int], float]) -> Callable[[int], float]:
        if self.planned is None:
            return whole
        steps, since = self.planned
        planned = learning_rate(self.args, steps)
        return lambda step: planned(step) if step >= since else whole(step)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Ours is written once, with the adapter."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with self.clock.phase("checkpoint"):
            self._publish_checkpoint(model, trial)

    def _publish_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            self.run.publish(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}", self.keep)
        self.accelerator.wait_for_everyone()


def learning_rate(args: Any, steps: int) -> Callable[[int], float]:
    """The factor of the learning rate at each step, from 0. Neither the first nor the last step has a rate of 0, as
    they would by the library's schedules.
    """
    warmup = args.get_warmup_steps(steps)
    nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = get_scheduler(
        args.lr_scheduler_type,
        nothing,
        num_warmup_steps=warmup + 1 if warmup else 0,
        num_training_steps=steps + 1,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
    factor = schedule.lr_lambdas[0]
    return lambda step: float(factor(step + 1))


def real_tokens(inputs: Any) -> int:
    """Tokens that are no padding."""
    if "attention_mask" in inputs:
        return int(inputs["attention_mask"].sum())
    starts = inputs["position_ids"] == 0  # of packed rows; each token of the padding is one of its own
    alone = starts & starts.roll(-1, dims=1)
    alone[:, -1] = starts[:, -1]
    return int((~alone).sum())


class StopCallback(TrainerCallback):  # type: ignore[misc]
    """Ends training after the step under way, with a checkpoint: on SIGTERM, or when the minutes are over.

    After a whole step, not within one: only then a resumed run repeats exactly what would have come. The first steps
    show how many fit into the minutes; where that is not all of them, so many are planned.
    """

    def __init__(self, trainer: Any, minutes: float | None) -> None:
        self._trainer, self._minutes = trainer, minutes
        self._before: Any = None
        self._deadline = float("inf")
        self._first: tuple[int, float] | None = None  # a step of this session, and when it was over
        self.terminated = self._requested = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._minutes is not None:
            self._deadline = time.monotonic() + 60 * self._minutes
        if self._trainer.planned is not None:
            state.max_steps = self._trainer.planned[0]
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._request_stop)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        requested, late = int(self._requested), int(time.monotonic() >= self._deadline)
        fitting = self._fitting(state.global_step) if state.is_world_process_zero else 0
        if args.world_size > 1:  # all processes stop after the same step
            flags = torch.tensor([requested, late, fitting], dtype=torch.int32, device=args.device)
            requested, late, fitting = map(int, self._trainer.accelerator.reduce(flags, "sum"))
        if 0 < fitting < state.max_steps:
            self._trainer.plan(max(fitting, state.global_step + 1))
        if requested or late:
            self.terminated = bool(requested) and state.global_step < state.max_steps
            # Logged too: with several steps a line, those since the last one would be lost.
            control.should_log = control.should_save = control.should_training_stop = True

    def _fitting(self, step: int) -> int:
        """How many steps the minutes allow in all; 0 where that is not known yet, or planned already."""
        if self._minutes is None or self._trainer.planned is not None:
            return 0
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)  # the first one also warms up
        done, since = step - self._first[0], now - self._first[1]
        if done < _SAMPLED or since < _SHARE * 60 * self._minutes:
            return 0
        return step + int(_CAREFUL * max(0.0, self._deadline - now) * done / since)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _request_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._requested = True


def until_it_fits(
    settings: Settings, attempt: Callable[[Settings], Result], log: Callable[[str], None], least: int = 1
) -> Result:
    """`attempt`, after each out-of-memory with half the rows at once and twice the accumulation: the same steps."""
    handler = signal.getsignal(signal.SIGTERM)
    while True:
        try:
            return attempt(settings)
        except (RuntimeError, MemoryError) as error:
            batch = settings.batch
            fits = (
                batch.auto
                and PartialState().num_processes == 1
                and batch.size % 2 == 0
                and batch.size // 2 >= least
            )
            if not (fits and (isinstance(error, MemoryError) or should_reduce_batch_size(error))):
                raise
        # Outside of `except`, where nothing holds the frames of the failed attempt and what they hold. Its handler of
        # SIGTERM would: the trainer, and with it the model.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        settings = settings.changed(batch={"size": batch.size // 2, "accumulation": batch.accumulation * 2})
        log(
            f"out of memory: {settings.batch.size} rows at once from here on, {settings.batch.accumulation} times a step"
        )
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
