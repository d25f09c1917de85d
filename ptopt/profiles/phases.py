"""Which part of a training step an operator or an annotation belongs to, by its name."""

from __future__ import annotations

import enum
import re

STEP = "ProfilerStep#"
OPTIMIZER_STEP = "Optimizer.step#"


class Phase(enum.IntEnum):
    """`NONE`: no operator runs, the host does something else."""

    NONE = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COMMUNICATION = 5


_BY_PREFIX = (
    ("enumerate(DataLoader)#", Phase.DATA),
    ("Optimizer.step#", Phase.OPTIMIZER),
    ("Optimizer.zero_grad#", Phase.OPTIMIZER),
    ("autograd::engine::evaluate_function", Phase.BACKWARD),
    ("nccl:", Phase.COMMUNICATION),
    ("gloo:", Phase.COMMUNICATION),
    ("mpi:", Phase.COMMUNICATION),
    ("c10d::", Phase.COMMUNICATION),
    ("_c10d_functional::", Phase.COMMUNICATION),
    ("record_param_comms", Phase.COMMUNICATION),
    ("DistributedDataParallel.forward", Phase.FORWARD),
    ("FullyShardedDataParallel.forward", Phase.FORWARD),
)
# Names that people give to ranges of their own, as words.
_WORDS = (
    (re.compile(r"\b(train_dataloader_next|(load|wait_for|next|get|fetch)_?(batch|data)|data_?load(er|ing)?)\b", re.I), Phase.DATA),
    (re.compile(r"\b(optimi[sz]er(_?step)?|zero_grad)\b", re.I), Phase.OPTIMIZER),
    (re.compile(r"\bbackward\b", re.I), Phase.BACKWARD),
    (re.compile(r"\bforward\b", re.I), Phase.FORWARD),
)  # fmt: skip


def phase_of(name: str, annotation: bool) -> Phase:
    """The phase that the name itself says; NONE where it says none."""
    for prefix, phase in _BY_PREFIX:
        if name.startswith(prefix):
            return phase
    if annotation:
        for words, phase in _WORDS:
            if words.search(name):
                return phase
    return Phase.NONE


def inside(outer: Phase, own: Phase) -> Phase:
    """The phase of what is named `own` within `outer`."""
    if own is Phase.COMMUNICATION or outer in (Phase.NONE, Phase.FORWARD):
        return own or outer
    return outer
