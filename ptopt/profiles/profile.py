"""What a trace says about a run. Shares are of the time of the steps, 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptopt.profiles.frames import Place

PARTS = ("data", "forward", "backward", "optimizer", "communication", "copies", "idle")
TITLES: Mapping[str, str] = {
    "data": "data loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "communication": "communication",
    "copies": "copies",
    "idle": "idle",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """A place of the user's code and what it causes: `idle` of the GPU while it ran, and `work` that it started there; on the
    CPU its time. `inside` is what functions of the user that it calls cause, which is theirs, too.
    """

    place: Place
    share: float  # idle + work
    idle: float
    work: float
    inside: float
    why: str  # of most of the idle time, or what most of the time runs: "aten::item"
    backward: float = 0.0  # of the share: the backward pass of what ran there


@dataclass(frozen=True, slots=True)
class Idle:
    """Gaps of the GPU with one cause: what the host did meanwhile, and where; None where no stack was recorded."""

    cause: str  # "data loading" | "synchronisation" | "operators" | "Python" | "launch latency"
    activity: str  # the outermost operator, or the call of the runtime
    place: Place | None
    share: float
    number: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Calls that make the host wait for the device, at one place; without a GPU, all reads of tensors: it may be none of them."""

    what: str
    place: Place | None
    per_step: float
    share: float  # of the step that the host waits; on the CPU, 0


@dataclass(frozen=True, slots=True)
class Copies:
    what: str  # "Memcpy HtoD (Pageable -> Device)"
    per_step: float
    bytes_per_step: float
    share: float


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of the GPU. Shares are of the time in which kernels ran."""

    per_step: float
    small: float  # share of their number below 10 µs
    small_time: float
    tensor_cores: float | None  # of the time of products, where names tell; None where none does
    products: float
    moving: float  # elementwise, reductions, normalisation, copies on the device
    slowest: tuple[tuple[str, float, float], ...]  # name, share, number per step


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    self_share: float
    total_share: float
    per_step: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A recorded run. On a machine without a GPU, `idle` is the time in which no operator ran."""

    name: str  # of the file
    origin: str
    device: str  # "cuda" | "cpu"
    devices: tuple[str, ...]
    rank: int | None
    ranks: int | None
    steps: int
    steps_by: str  # how they were found
    step_ms: tuple[float, float, float]  # mean, shortest, longest
    shares: Mapping[str, float]  # by `PARTS`; they add up to 1
    utilisation: float | None  # of the GPU, in the steps
    costs: tuple[Cost, ...]  # most expensive first
    idle: tuple[Idle, ...]
    waits: tuple[Waiting, ...]
    copies: tuple[Copies, ...]
    kernels: Kernels | None
    operators: tuple[Operator, ...]  # on the host, by their own time
    products: float  # share of the operators' own time that products take, on the CPU
    moving: float
    limits: tuple[str, ...]  # what this trace cannot say
    events: int
