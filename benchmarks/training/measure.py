"""Trains one variant in this process, and measures it the same way whoever trains.

The clock is a callback that `transformers` gives to every trainer, so the recipe need not know that it is measured.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import datasets
import psutil
import torch
import transformers
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from benchmarks.training import naive
from benchmarks.training.results import Measurement
from benchmarks.training.variants import Geometry
from ptopt.model.backends.loading import base_hash, resolve_base
from training.recipes.settings import Settings, read
from training.recipes.tokens import IGNORED, token_rows

Padding = Literal["", "fixed", "dynamic"]
EVAL_TOKENS = 2048  # of one forward pass, padding included


@dataclass(frozen=True)
class Task:
    """The job of one process. `padding` is the naive recipe's; the product's has none."""

    name: str
    title: str
    config: Path
    changes: tuple[str, ...]
    shown: tuple[str, ...]  # of the changes, those that make the variant
    geometry: Geometry
    device: str
    output: Path
    padding: Padding = ""


@dataclass
class TimingCallback(TrainerCallback):  # type: ignore[misc]
    """CPU seconds (with those of loader processes) and wall seconds at the end of each optimizer step."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        _reset_peak()
        self._mark()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self._mark()

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.peak_mb = _peak_mb()

    def _mark(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.cpu.append(_cpu_seconds())
        self.wall.append(time.perf_counter())

    def seconds(self, marks: list[float]) -> float:
        """All steps, the first one at the median of the others: caches fill and compilers run in it."""
        steps = [b - a for a, b in itertools.pairwise(marks)]
        return sum(steps[1:]) + statistics.median(steps[1:] or steps)


def measure(task: Task) -> Measurement:
    """Raises RuntimeError when nothing was trained, and whatever the recipe raises."""
    quiet()
    settings = read(task.config, task.changes)
    base = resolve_base(settings.model.base)
    rows = training_rows(settings, base)
    clock = TimingCallback()
    with _watched(clock):
        if task.padding:
            pad_to = task.geometry.pad_to if task.padding == "fixed" else None
            batch = (task.geometry.several, task.geometry.rows // task.geometry.several)
            naive.train(settings, base, rows, batch, pad_to, task.output)
        else:
            from training.recipes.cli import sft

            sft.main([str(task.config), *task.changes], prog_name="sft", standalone_mode=False)
    if len(clock.wall) < 2:
        raise RuntimeError("no step was trained")
    gc.collect()
    return Measurement(
        name=task.name,
        title=task.title,
        changes=task.shown,
        tokens=sum(map(len, rows["input_ids"])),
        steps=len(clock.wall) - 1,
        cpu_s=round(clock.seconds(clock.cpu), 3),
        wall_s=round(clock.seconds(clock.wall), 3),
        first_s=round(clock.wall[1] - clock.wall[0], 3),
        peak_mb=round(clock.peak_mb, 1),
        loss=round(held_out_loss(settings, base, task.device, _adapter_in(task.output))[0], 4),
    )


def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()


def training_rows(settings: Settings, base: Path, split: str = "train") -> datasets.Dataset:
    """The rows that every variant is given, in the ids that the recipe trains on."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    found = token_rows(settings.data, tokenizer, base_hash(base), split, seed=settings.seed, limit=None)
    return found.select_columns(["input_ids", "labels"])


@torch.inference_mode()  # type: ignore[untyped-decorator]
def held_out_loss(settings: Settings, base: Path, device: str, adapter: Path | None) -> tuple[float, int]:
    """Mean cross-entropy over the labelled positions of the validation rows, and how many those are.

    The frozen weights are bf16 for everybody, as served.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to(device)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    model.eval()
    rows = sorted(training_rows(settings, base, "validation"), key=lambda row: len(row["input_ids"]))
    total, count, start = 0.0, 0, 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and len(rows[stop]["input_ids"]) * (stop + 1 - start) <= EVAL_TOKENS:
            stop += 1
        batch, start = rows[start:stop], stop
        width = max(len(row["input_ids"]) for row in batch)
        # Padding stands on the right, where causal attention does not look.
        ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in batch])
        labels = torch.tensor([row["labels"] + [IGNORED] * (width - len(row["labels"])) for row in batch])
        at = (labels[:, 1:] != IGNORED).nonzero()
        columns = at[:, 1].unique()
        logits = model(ids.to(device), use_cache=False, logits_to_keep=columns.to(device)).logits.cpu()
        place = torch.searchsorted(columns, at[:, 1])
        wanted = labels[at[:, 0], at[:, 1] + 1]
        chosen = logits[at[:, 0], place].float()
        total += float(torch.nn.functional.cross_entropy(chosen, wanted, reduction="sum"))
        count += len(wanted)
    return total / count, count


def quietly(task: Task, results: Any) -> None:
    """`measure` in a process of its own: what it prints goes to a file, what it finds through a pipe."""
    task.output.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000"
        )  # if memory runs out, this process goes, and no other
    torch.set_num_threads(1)
    with (task.output / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            found: Measurement | str = measure(task)
        except (Exception, SystemExit) as error:
            import traceback

            traceback.print_exc()
            found = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.160}"
        sys.stdout.flush()
        sys.stderr.flush()
    results.send(found)
    results.close()


@contextlib.contextmanager
def _watched(clock: TimingCallback) -> Iterator[None]:
    transformers.trainer.DEFAULT_CALLBACKS.append(clock)
    try:
        yield
    finally:
        transformers.trainer.DEFAULT_CALLBACKS.remove(clock)


def _adapter_in(output: Path) -> Path:
    found = sorted(output.rglob("adapter_model.safetensors"), key=lambda p: len(p.parts))
    if not found:
        raise RuntimeError(f"{output}: training left no adapter")
    return found[0].parent


def _cpu_seconds() -> float:
    """Of this process and its children, those that still run included."""
    own = psutil.Process()
    times = own.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = child.cpu_times()
            total += spent.user + spent.system
    return float(total)


def _reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated() / 1e6)
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status.open() if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
