"""What bounds a run, the figures that show it, and what to change first.

The targets are those of the optimization guide that ptopt follows: a GPU that is busy more than 85 % of the time, and data
loading below 5 % of the step. Where more than the other 15 % of the step is lost, the largest loss bounds the run; else what its
kernels do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ptopt.profiles.built import NOT_KNOWN, Built
from ptopt.profiles.profile import Profile

UTILISATION = 0.85
LOADING = 0.05
LOST = 1 - UTILISATION  # of a step, to loading, idle time, communication and copies together
DOMINANT = 0.60  # of the time of kernels, or of operators
_NAMED = 3  # places of a change
_CLOSE = 0.8  # the second loss, as a share of the first, from which on none is the bottleneck

Kind = Literal["data", "host", "communication", "memory", "compute", "none"]
TITLES: Mapping[Kind, str] = {
    "data": "Data-bound",
    "host": "Host-bound",
    "communication": "Communication-bound",
    "memory": "Memory-bound",
    "compute": "Compute-bound",
    "none": "No single bottleneck",
}


_LOSSES: Mapping[str, Kind] = {
    "data": "data", "idle": "host", "communication": "communication", "copies": "memory"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    evidence: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A figure beside what it should be."""

    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def targets(profile: Profile) -> tuple[Target, ...]:
    loading = Target("data loading", profile.shares["data"], LOADING, at_least=False)
    if profile.utilisation is None:
        return (loading,)
    return (Target("GPU utilisation", profile.utilisation, UTILISATION, at_least=True), loading)


def verdict(profile: Profile, built: Built = NOT_KNOWN) -> Verdict:
    """What bounds the run. `built`: where the code builds what a change is about, so that the change names the line."""
    shares = profile.shares
    losses = sorted(((shares[part], kind, part) for part, kind in _LOSSES.items()), reverse=True)
    if sum(share for share, _, _ in losses) <= LOST:
        return _by_work(profile, built)
    (first, kind, part), (second, other, next_part) = losses[:2]
    if second >= _CLOSE * first:
        both = f"{_loss(profile, part)}, and {_loss(profile, next_part)}"
        return Verdict("none", both, (*_changes(profile, kind, built), *_changes(profile, other, built)))
    return Verdict(kind, _loss(profile, part), tuple(_changes(profile, kind, built)))


def _by_work(profile: Profile, built: Built) -> Verdict:
    what = "time of kernels" if profile.device == "cuda" else "own time of operators"
    busy = "" if profile.utilisation is None else f"the GPU is {profile.utilisation:.0%} busy, and "
    if profile.products >= DOMINANT:
        kind: Kind = "compute"
        evidence = f"{busy}products, convolutions and attention take {profile.products:.0%} of the {what}"
    elif profile.moving >= DOMINANT:
        kind = "memory"
        evidence = f"{busy}operators that mostly move data (elementwise, normalisation, updates of weights) take {profile.moving:.0%} of the {what}"
    else:
        kind = "none"
        evidence = f"{busy}products take {profile.products:.0%} and what mostly moves data {profile.moving:.0%} of the {what}"
    return Verdict(kind, evidence, tuple(_changes(profile, kind, built)))


def _loss(profile: Profile, part: str) -> str:
    share = f"{profile.shares[part]:.0%} of the step"
    if part == "data":
        return f"{share} waits for batches (target: below {LOADING:.0%})"
    if part == "communication":
        return f"{share} is communication that no computation hides"
    if part == "copies":
        return f"{share} copies between host and device while nothing is computed"
    if profile.device == "cuda":
        return f"in {share} the GPU waits for the host"
    return f"in {share} no operator runs: Python and other work of the host"


def _changes(profile: Profile, kind: Kind, built: Built) -> Iterator[str]:
    if kind == "data":
        yield f"more `num_workers` of the DataLoader{_at(built.loaders)}, so that batches are made beside the training"
        yield "less work per sample: decode, tokenize and resize once, before the training"
    elif kind == "host":
        waiting = sum(row.share for row in profile.idle if row.cause == "synchronisation")
        if waiting > 0.05:
            yield f"fewer reads of tensors by the host: {waiting:.0%} of the step is idle after one"
        if profile.kernels is not None and profile.kernels.small > 0.5:
            yield f"fewer, larger kernels (`torch.compile`, larger batches): {profile.kernels.small:.0%} of them take less than 10 µs"
        yield "no Python per element or per layer between the operators"
    elif kind == "communication":
        yield "overlap it with the backward pass (larger or fewer buckets), or communicate less often (`no_sync` while gradients accumulate)"
    elif kind == "memory":
        if profile.shares["copies"] > profile.shares["optimizer"]:
            yield "copy from pinned memory without waiting (`pin_memory=True`, `non_blocking=True`), and keep on the device what is used there"
        else:
            if profile.shares["optimizer"] > 0.15:
                yield f"a fused optimizer (`fused=True`{_at(built.optimizers)}): updates of weights take {profile.shares['optimizer']:.0%} of the step"
            yield "fuse elementwise operators (`torch.compile`), and move less: bfloat16, no needless copies"
    elif kind == "compute":
        used = profile.kernels.tensor_cores if profile.kernels is not None else None
        if used is not None and used < 0.5:
            yield f"bfloat16 or TF32: {used:.0%} of the time of products is on tensor cores"
        yield "this is as it should be; what is left is less work: smaller precision, a smaller model, fewer recomputations"
    elif kind == "none":
        yield "the places below, from the top"


def _at(places: Sequence[str]) -> str:
    """` at train.py:12`, to stand behind what is built there; "" where that is not known."""
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f" at {', '.join(places[:_NAMED])}{more}" if places else ""
