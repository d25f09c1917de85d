"""The rows of the table: one function a measure, each asks the setup and says on, off, unknown or not applicable."""

from __future__ import annotations

from collections.abc import Callable

from ptopt.audit.measures import (
    attention,
    copies,
    distributed,
    loader,
    memory,
    optimizer,
    padding,
    precision,
    running,
    saving,
)
from ptopt.audit.setup import Setup
from ptopt.audit.values import Measure

ALL: tuple[Callable[[Setup], Measure], ...] = (
    precision.mixed_precision,
    precision.tf32,
    attention.attention,
    precision.compiled,
    loader.workers,
    loader.pin_memory,
    loader.persistent_workers,
    loader.prefetch,
    copies.non_blocking,
    padding.padding,
    optimizer.fused,
    optimizer.zero_grad,
    optimizer.accumulation,
    memory.checkpointing,
    distributed.strategy,
    memory.channels_last,
    memory.cudnn_benchmark,
    running.evaluation,
    saving.saving,
    running.monitoring,
)


def measures_of(setup: Setup) -> tuple[Measure, ...]:
    return tuple(measure(setup) for measure in ALL)
