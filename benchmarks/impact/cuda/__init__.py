"""Benchmarks of rules on a GPU: a file a family; a rule's name -> its workloads, the most frequent families first."""

from __future__ import annotations

from benchmarks.impact.cuda import (
    attention,
    autograd,
    debug,
    memory,
    memory_held,
    ops,
    ops_index,
    ops_loops,
    optim,
    precision,
    sync,
    transfer,
)
from benchmarks.impact.cuda.workload import Workload

_FAMILIES = (
    sync,
    transfer,
    optim,
    attention,
    precision,
    autograd,
    memory,
    memory_held,
    ops_index,
    ops_loops,
    ops,
    debug,
)
WORKLOADS: dict[str, list[Workload]] = {
    name: workloads for family in _FAMILIES for name, workloads in family.WORKLOADS.items()
}
