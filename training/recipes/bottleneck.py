"""What bounds a training run, and what to change: a pure function from its figures and settings to a verdict in words.

Kinds are tested in the order in which they hide each other: while batches are waited for, the speed of the model says
nothing. A share that is above its limit is the evidence; without one the run is bound by its computation, as it should be.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from training.recipes.live import PAUSES, PHASES

if TYPE_CHECKING:
    from training.recipes.settings import Settings

DATA = 0.05  # of a run may go to waiting for batches
PAUSED = 0.10  # to checkpoints, and as much to evaluation
OPTIMIZER = 0.15
PADDING = 0.15  # of what is computed
UTILISATION = 0.85  # of the device; what is missing to 1 is idle
OTHER = 0.15  # of a run, where the utilisation is not known
ROOMY = 0.6  # of the memory: less leaves room for larger batches

Kind = Literal["checkpoints", "evaluation", "data", "padding", "optimizer", "idle", "compute"]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a line of metrics, or of a whole run. Shares are of the wall time, 0 to 1, and add up to 1."""

    time: Mapping[str, float]  # by `PHASES` and `PAUSES`
    tokens_per_s: float  # without padding, of all processes
    padding: float  # share of the positions computed
    memory: float  # share of the device's, at most
    utilisation: float | None = None  # of the device; None where the system does not say
    cuda: bool = False
    cores: int = 1  # that this process may use

    @property
    def idle(self) -> float:
        """Share of the time in which the device computed nothing, as far as is known."""
        if self.utilisation is not None:
            return max(0.0, 1 - self.utilisation)
        return 1 - sum(self.time[name] for name in ("forward", "backward", "optimizer"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What bounds the run, the figures that show it, and what to change, most promising first."""

    kind: Kind
    evidence: str
    changes: tuple[str, ...]

    def __str__(self) -> str:
        change = f" To change: {'; '.join(self.changes)}." if self.changes else ""
        return f"{_TITLES[self.kind]}: {self.evidence}.{change}"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure beside what it should be."""

    name: str
    value: str
    wanted: str
    reached: bool


_TITLES: Mapping[Kind, str] = {
    "checkpoints": "Bound by checkpoints",
    "evaluation": "Bound by evaluation",
    "data": "Data-bound",
    "padding": "Bound by padding",
    "optimizer": "Bound by the optimizer",
    "idle": "Device idle",
    "compute": "Compute-bound",
}


def verdict(figures: Figures, settings: Settings) -> Verdict:
    """What bounds a run with these figures."""
    time = figures.time
    if time["checkpoint"] > PAUSED:
        every = settings.checkpoint.every
        return Verdict(
            "checkpoints",
            f"{time['checkpoint']:.0%} of the time writes checkpoints (limit {PAUSED:.0%})",
            (f"checkpoint.every={_less_often(every, time['checkpoint'], PAUSED)} in place of {every}",),
        )
    if time["evaluation"] > PAUSED:
        every = settings.evaluate.every
        return Verdict(
            "evaluation",
            f"{time['evaluation']:.0%} of the time evaluates (limit {PAUSED:.0%})",
            (
                f"evaluate.every={_less_often(every, time['evaluation'], PAUSED)} in place of {every}",
                f"fewer evaluate.rows than {settings.evaluate.rows}",
            ),
        )
    if time["data"] > DATA:
        evidence = f"{time['data']:.0%} of the time waits for batches (limit {DATA:.0%})"
        return Verdict("data", evidence, tuple(_for_data(figures, settings)))
    if figures.padding > PADDING:
        evidence = f"{figures.padding:.0%} of the positions computed are padding (limit {PADDING:.0%})"
        return Verdict("padding", evidence, tuple(_for_padding(settings)))
    if time["optimizer"] > OPTIMIZER:
        evidence = (
            f"{time['optimizer']:.0%} of the time clips gradients and updates weights (limit {OPTIMIZER:.0%})"
        )
        return Verdict("optimizer", evidence, tuple(_for_optimizer(settings)))
    utilised = figures.utilisation
    if utilised is not None and utilised < UTILISATION:
        evidence = f"the {_device(figures)} is {utilised:.0%} utilised (target {UTILISATION:.0%})"
        return Verdict("idle", evidence, tuple(_for_idle(figures, settings)))
    if utilised is None and time["other"] > OTHER:
        evidence = f"{time['other']:.0%} of the time is outside of forward, backward and optimizer (limit {OTHER:.0%})"
        return Verdict("idle", evidence, tuple(_for_idle(figures, settings)))
    forward, backward = time["forward"], time["backward"]
    busy = "" if utilised is None else f", and the {_device(figures)} is {utilised:.0%} utilised"
    evidence = f"forward takes {forward:.0%} and backward {backward:.0%} of the time{busy}"
    return Verdict("compute", evidence, tuple(_for_compute(figures, settings)))


def targets(figures: Figures, settings: Settings) -> list[Target]:
    """The figures that have a target; tokens/s only where the settings name one."""
    data, utilised, wanted = figures.time["data"], figures.utilisation, settings.tracking.target
    found = [Target("waiting for batches", f"{data:.1%}", f"<= {DATA:.0%}", data <= DATA)]
    if utilised is not None:
        name = f"utilisation of the {_device(figures)}"
        found.append(Target(name, f"{utilised:.0%}", f">= {UTILISATION:.0%}", utilised >= UTILISATION))
    if wanted is not None:
        reached = figures.tokens_per_s >= wanted
        found.append(Target("tokens/s", f"{figures.tokens_per_s:,.0f}", f">= {wanted:,.0f}", reached))
    return found


def figures_of(lines: Sequence[Mapping[str, Any]]) -> Figures:
    """Of the lines of `metrics.jsonl`, by the wall time of each; the first, which also warms up, is left out where it
    can be. Raises ValueError where there is no line.
    """
    lines = lines[1:] or lines
    if not lines:
        raise ValueError("the run has no metrics yet")
    whole = sum(float(line["seconds"]) for line in lines)

    def mean(values: Iterable[float]) -> float:
        """Weighted by the time of each line."""
        return sum(v * float(line["seconds"]) for v, line in zip(values, lines, strict=True)) / (whole or 1.0)

    paused = {name: sum(line["pauses"][name] for line in lines) / (whole or 1.0) for name in PAUSES}
    working = 1 - sum(paused.values())
    split = {name: mean(line["time"][name] for line in lines) * working for name in PHASES}
    known = [line["utilisation"] for line in lines if line["utilisation"] is not None]
    last = lines[-1]
    return Figures(
        time={**split, **paused},
        tokens_per_s=mean(line["tokens_per_s"] for line in lines),
        padding=mean(line["padding"] for line in lines),
        memory=max(line["memory_share"] for line in lines),
        utilisation=statistics.fmean(known) if known else None,
        cuda=last["cuda"],
        cores=last["cores"],
    )


def report(lines: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Where the time of a run went, against its targets, and what bounds it, as Markdown. Raises ValueError as `figures_of`."""
    figures = figures_of(lines)
    shares = " | ".join(f"{share:.1%}" for share in figures.time.values())
    text = [
        f"# {settings.name}: where the time goes",
        f"{lines[-1]['step']} steps, {figures.tokens_per_s:,.0f} tokens/s without padding.",
        f"| {' | '.join(figures.time)} | idle |\n|{'---|' * (len(figures.time) + 1)}\n| {shares} | {figures.idle:.1%} |",
        "| figure | value | target | reached |\n|---|---|---|---|\n"
        + "\n".join(f"| {t.name} | {t.value} | {t.wanted} | {'yes' if t.reached else 'no'} |" for t in targets(figures, settings)),
        f"**{verdict(figures, settings)}**",
    ]  # fmt: skip
    return "\n\n".join(text) + "\n"


# -- what to change ------------------------------------------------------------------------------------------


def _device(figures: Figures) -> str:
    return "GPU" if figures.cuda else "CPU"


def _less_often(every: int, share: float, limit: float) -> int:
    """So many steps that the share of the time falls to half of the limit."""
    work = 1 - share
    return max(every + 1, round(every * (share / work) * (1 - limit / 2) / (limit / 2)))


def _for_data(figures: Figures, settings: Settings) -> Iterator[str]:
    data = settings.data
    if figures.cores > data.workers + 1:
        yield f"data.workers={max(2, 2 * data.workers)} in place of {data.workers}, so that batches are made beside the training"
    elif data.workers:
        yield f"data.prefetch={2 * data.prefetch} in place of {data.prefetch}: no core is free for more data.workers"
    else:
        yield "no core is free for data.workers: put the dataset on a faster disk"
    if figures.cuda and not data.pin:
        yield "data.pin=true: copies from pinned memory need not be waited for"


def _for_padding(settings: Settings) -> Iterator[str]:
    if not settings.data.packing:
        yield "data.packing=true"
        if settings.data.order != "by-length":
            yield "or data.order=by-length"
    else:
        yield "data.pack_to higher, so that a row holds more whole examples"
    if settings.data.multiple_of > 64:
        yield f"data.multiple_of=64 in place of {settings.data.multiple_of}"


def _for_optimizer(settings: Settings) -> Iterator[str]:
    yield f"batch.accumulation={2 * settings.batch.accumulation} in place of {settings.batch.accumulation}: fewer updates"
    if settings.optimizer.name not in ("adamw_torch_fused", "adamw_8bit"):
        yield f"optimizer.name=adamw_torch_fused in place of {settings.optimizer.name}"
    if settings.cpu_offload == "parameters":
        yield "cpu_offload=none, if the memory allows: updates on the host are slow"


def _for_idle(figures: Figures, settings: Settings) -> Iterator[str]:
    if not figures.cuda:
        yield "end other processes that compute on this machine, or set threads to the cores that are free"
        yield "OMP_WAIT_POLICY=PASSIVE, so that threads do not hold cores while they wait"
        return
    if figures.memory < ROOMY:
        yield _larger_batch(figures, settings)
    if settings.compile == "off":
        yield "compile=default: fewer kernels are started"
    if settings.tracking.every < 5:
        yield "tracking.every=5: a logged step waits for the GPU at each phase"


def _for_compute(figures: Figures, settings: Settings) -> Iterator[str]:
    if settings.precision == "fp32":
        yield "precision=bf16, where the hardware multiplies it"
    if settings.model.attention == "eager":
        yield "model.attention=auto in place of eager"
    if settings.activation_checkpointing and figures.memory < ROOMY:
        yield f"activation_checkpointing=false: {figures.memory:.0%} of the memory is used"
    if figures.cuda and figures.memory < ROOMY:
        yield _larger_batch(figures, settings)
    if figures.cuda and settings.compile == "off":
        yield "compile=default"
    if not figures.cuda and settings.lora.last is None:
        yield "lora.last=N: no backward pass below the last N layers"
    yield "`python -m benchmarks.training audit CONFIG` names further switches"


def _larger_batch(figures: Figures, settings: Settings) -> str:
    size, accumulation = settings.batch.size, settings.batch.accumulation
    fewer = f" batch.accumulation={accumulation // 2}" if accumulation > 1 else ""
    return f"batch.size={2 * size}{fewer}: {figures.memory:.0%} of the memory is used"
