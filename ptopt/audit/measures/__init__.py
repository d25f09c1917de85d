"""The rows of the table: one function a measure, each asks the setup and says on, off, unknown or not applicable."""

from __future__ import annotations

from collections.abc import Callable

from ptopt.audit.measures import (
    accumulation,
    attention,
    copies,
    distributed,
    evaluation,
    loader,
    memory,
    monitoring,
    optimizer,
    padding,
    precision,
    saving,
)
from ptopt.audit.setup import Setup
from ptopt.audit.values import Measure, State
from ptopt.source.work import WorkLimitError

TOO_MUCH_WORK = "the analysis limit of one script was reached"
ALL: tuple[tuple[str, str, Callable[[Setup], Measure]], ...] = (
    ("precision", "Mixed precision", precision.mixed_precision),
    ("tf32", "TF32 matrix products", precision.tf32),
    ("attention", "Attention", attention.attention),
    ("compile", "torch.compile", precision.compiled),
    ("workers", "Loader workers", loader.workers),
    ("pin_memory", "Pinned memory", loader.pin_memory),
    ("persistent_workers", "Persistent workers", loader.persistent_workers),
    ("prefetch", "Prefetching", loader.prefetch),
    ("non_blocking", "Copies that do not wait", copies.non_blocking),
    ("padding", "Padding and packing", padding.padding),
    ("fused_optimizer", "Fused optimizer", optimizer.fused),
    ("set_to_none", "Gradients set to None", optimizer.zero_grad),
    ("accumulation", "Gradient accumulation", accumulation.accumulation),
    ("gradient_checkpointing", "Activation checkpointing", memory.checkpointing),
    ("distributed", "Distributed training", distributed.strategy),
    ("channels_last", "channels_last", memory.channels_last),
    ("cudnn_benchmark", "cuDNN autotuning", memory.cudnn_benchmark),
    ("evaluation", "Evaluation without a graph", evaluation.evaluation),
    ("saving", "Checkpoints", saving.saving),
    ("monitoring", "Monitoring and profiling", monitoring.monitoring),
)


def measures_of(setup: Setup) -> tuple[Measure, ...]:
    """All rows; those for which no work is left are unknown, and say so."""
    return tuple(_judged(setup, *row) for row in ALL)


def _judged(setup: Setup, key: str, title: str, measure: Callable[[Setup], Measure]) -> Measure:
    try:
        found = measure(setup)
        # What the launcher itself does not do the script that it starts may do.
        open_ = setup.started_script and found.state in (State.OFF, State.NOT_APPLICABLE)
        return Measure(key, title, State.UNKNOWN, setup.blind, setup.where()) if open_ else found
    except (WorkLimitError, RecursionError):
        return Measure(key, title, State.UNKNOWN, TOO_MUCH_WORK)
