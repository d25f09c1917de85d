"""The values an audit is made of. Lines are 1-based, in the file as it stands on disk."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ptopt.findings import Finding, Impact, LeftOut, NotReviewed
from ptopt.project.added import Added
from ptopt.project.pins import Pin


class State(str, enum.Enum):
    """What is known of one measure in one training setup."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, order=True)
class Place:
    path: str
    line: int
    cell: tuple[int, int] | None = None  # of a notebook: its number, and the line in it

    def __str__(self) -> str:
        """As a review names it: `train.py:12`, `train.ipynb:cell 2:5`."""
        return f"{self.path}:{self.where}"

    @property
    def where(self) -> str:
        """In its file: `12`, `cell 2:5`."""
        return str(self.line) if self.cell is None else f"cell {self.cell[0]}:{self.cell[1]}"


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table of a training setup."""

    key: str  # "precision", "tf32", ...: see `ptopt.audit.measures`
    title: str
    state: State
    detail: str  # how it is set, and by what: "bfloat16, default of `--dtype`"
    evidence: tuple[Place, ...] = ()
    checked: Checked | None = None  # None: no model read it
    lacking: Added | None = None  # what the library of the project does not have yet, so that it is off

    @property
    def by_model(self) -> bool:
        """Did a model replace what the static audit says?"""
        return self.checked is not None and self.checked.before is not None


@dataclass(frozen=True, slots=True)
class Checked:
    """A model compared a row with the code. `before`: the row of the static audit that its own took the place of; None: it agreed."""

    model: str
    before: Measure | None = None


Lines = tuple[str, int, int]  # path, first line, last line


class Sign(enum.Enum):
    """What the code of a script, and what is written about it, tells of its training: of its cost, and of how it is changed."""

    SMALL = "words say that the network is small, that the numerics need float32, or that a simulator takes the time"
    DECODES = "each item of its datasets is decoded from a file when it is asked for"
    MAKES_PICTURES = "its network makes pictures, adversarially or by diffusion"
    FEEDS_ALL = "one process loads for all GPUs (`DataParallel`)"
    PRETRAINED = "it loads a network of transformers or diffusers with its weights"
    TAKES_FLAGS = "its command line takes each argument of its trainer"
    STARTED = "a script or the documentation starts it"
    NOT_DOCUMENTED = "there is documentation, and none of a training with it"


class Kind(enum.Enum):
    """What keeps `torch.autocast` from working, or from paying, in a training as it stands."""

    PROBABILITIES = "a loss of probabilities, on which autocast raises"
    THREADS = "threads of `DataParallel`, which do not take the dtype of an autocast over"
    FLOAT32 = "operations or compiled kernels that are not known to take half precision"
    ENGINE = "a library runs the steps in a way of its own"
    OF_REGISTRY = "some of the networks that it finds by their names call compiled kernels"
    GRADIENT_PENALTY = "gradients are taken inside the loss and differentiated again"
    PUT_BY_MASK = "float32 values are put by a mask into a tensor of the network's type"
    OLD_TORCH = "code or an environment of a torch without autocast"
    NO_BFLOAT16 = "the named GPUs have no fast bfloat16 (Volta, Turing)"
    PARTLY_NO_BFLOAT16 = "some of the named GPUs have none"
    NO_TENSOR_CORES = "the named GPUs have no tensor cores (Pascal and older)"


@dataclass(frozen=True, slots=True)
class Obstacle:
    kind: Kind
    what: str  # as a sentence names it: "nn.BCELoss", "V100"
    place: Place


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A script that trains, and what its training uses."""

    path: str
    line: int  # of the loop or of the call that starts the training
    framework: str  # "PyTorch", "Accelerate", "transformers", ...
    loop: Place | None  # where the loop or the call stands: in the script or in another module
    files: int  # of the repository that it runs code of
    measures: tuple[Measure, ...]
    limits: tuple[str, ...] = ()  # what of it could not be followed
    trial: bool = False  # makes a few steps to measure them
    modules: frozenset[str] = frozenset()  # files of the repository that it runs code of
    signs: frozenset[Sign] = frozenset()
    reached: frozenset[Lines] = frozenset()  # the functions that run
    certain: frozenset[Lines] = frozenset()  # those of them that no open condition stands before
    idle: frozenset[Lines] = frozenset()  # those of them that options keep from running
    obstacles: tuple[Obstacle, ...] = ()  # to mixed precision
    bounds: tuple[Pin, ...] = ()  # newest versions that its imports admit
    commands: int = 0  # of the repository that start its training


def measure_of(entry: EntryPoint, key: str) -> Measure | None:
    return next((m for m in entry.measures if m.key == key), None)


class Level(str, enum.Enum):
    """How much a finding weighs in the audit."""

    CRITICAL = "critical"
    MODERATE = "moderate"
    LOW = "low"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Weighed:
    """A finding of the review, with its weight in the audit and why it has that."""

    finding: Finding
    level: Level
    reason: str
    also: tuple[Place, ...] = ()  # where else the same is said, word for word
    at: str = ""  # where it stands, in words
    others: tuple[Finding, ...] = ()  # that say the same


@dataclass(frozen=True, slots=True)
class Gap:
    """A measure that is off in some training setups, and what it may bring."""

    key: str
    title: str
    level: Level
    action: str  # what to do, in one or two sentences
    wrong_if: str  # when the advice does not hold
    entries: tuple[str, ...]  # paths of the scripts
    evidence: tuple[Place, ...]
    impact: tuple[Impact, ...] = ()  # empty: no published or measured figure holds for it
    other_figures: bool = False  # there are some, of code that the scripts are not known to resemble
    effort: str = ""  # how large the change is


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    title: str
    effort: str  # "a flag", "an hour", ...
    speeds_up: (
        str  # the part of a step that it makes faster: ranges of the same part are not multiplied; "" of none
    )
    less_memory: str = ""  # the part that needs less memory after it; "" of none
    impact: tuple[Impact, ...] = ()
    places: tuple[Place, ...] = ()
    command: str = (
        ""  # of a shell at the root of the repository: applies the fixes of rules, where they have some
    )


@dataclass(frozen=True, slots=True)
class Phase:
    title: str
    effort: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Good:
    """What is in place already, and in which scripts."""

    title: str
    details: tuple[str, ...]
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelReading:
    """What a model made of the tables and findings of an audit, in numbers."""

    model: str
    scripts: int = 0  # whose tables it read
    agreed: int = 0  # rows
    changed: int = 0
    refused: int = 0  # changes that did not stand when it was to prove them wrong
    findings: int = 0  # critical and moderate ones that it was asked about
    refuted: int = 0  # of these, left out
    invalid: int = 0  # answers that do not conform, in whole or in part
    note: str = ""  # why it did not read all; "" where it did


@dataclass(frozen=True, slots=True)
class Audit:
    """All that an audit says. `name` is that of the folder."""

    name: str
    files: int  # Python files and notebooks that were looked at
    entries: tuple[EntryPoint, ...]
    findings: tuple[Weighed, ...]
    gaps: tuple[Gap, ...]
    good: tuple[Good, ...]
    plan: tuple[Phase, ...]
    notes: tuple[str, ...] = ()  # how the ranges relate
    not_judged: tuple[str, ...] = ()
    outside: tuple[
        str, ...
    ] = ()  # scripts of a folder that import from outside it, and of which no training was seen
    not_reviewed: tuple[NotReviewed, ...] = ()
    left_out: LeftOut | None = (
        None  # places that rules propose, which are no findings here; None: there is none
    )
    model: ModelReading | None = None  # None: the static audit alone
    cells: Mapping[str, Mapping[int, tuple[int, int]]] = field(
        default_factory=dict
    )  # notebook -> line on disk -> (cell, line in the cell)
