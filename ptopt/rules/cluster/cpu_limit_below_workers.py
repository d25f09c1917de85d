from __future__ import annotations

from collections.abc import Iterator

from ptopt.configs.containers import cores
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence

_WORKERS = ("num-workers", "workers", "dataloader-num-workers", "data-workers", "num-data-workers")
_PROCESSES = ("nproc-per-node", "num-processes", "nproc_per_node")


class CpuLimitBelowWorkers(ConfigRule):
    """A pod starts more loader workers than it has CPUs.

    ## What it does
    Finds training containers whose command asks for more worker processes of the data loader (times the processes a node
    starts, where the command says so) than the CPU limit of the container has cores.

    ## Why it is slow
    The kernel throttles the container when its processes used up their share of a period: all of them stop, the one that
    launches GPU work among them.

    ## Fix safety
    No fix is offered: whether to raise the limit or to start fewer workers is a matter of the cluster.

    ## Sources
    - [Kubernetes: how limits are applied](https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/)
    """

    id = "PTO052"
    name = "cpu-limit-below-workers"
    family = "cluster"
    kinds = frozenset({"kubernetes"})
    prior = 0.7
    when_wrong = "workers mostly wait for storage"

    VALID = (
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: train
              command: [python, train.py, --num-workers, "4"]
              resources: {limits: {cpu: 6}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: web
              command: [gunicorn, --workers, "16"]
              resources: {limits: {cpu: 4}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: train
              command: [python, train.py, --num-workers, "16"]
              resources: {requests: {cpu: 4}}
        """,
    )
    INVALID = (
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: train
                  command: [python, train.py, --num-workers, "16"]
                  resources:
                    limits:
                      cpu: 4  # !
        """),
        Invalid("""
            apiVersion: batch/v1
            kind: Job
            spec:
              template:
                spec:
                  containers:
                    - name: train
                      command: [torchrun, --nproc-per-node=8, train.py, --num_workers=4]
                      resources:
                        limits:
                          cpu: "16"  # !
        """),
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: train
                  command: ["sh", "-c", "python finetune.py --dataloader_num_workers 8"]
                  resources:
                    limits:
                      cpu: 3500m  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for container in file.containers:
            limit = container.mapping.entry("resources", "limits", "cpu")
            available = cores(limit.value) if limit is not None else None
            if limit is None or available is None or not container.trains:
                continue
            workers = _number(container.option(*_WORKERS))
            processes = _number(container.option(*_PROCESSES)) or 1
            if workers is None or workers * processes <= available:
                continue
            each = f" in each of {processes} processes" if processes > 1 else ""
            line = file.document.line(container.mapping.start)
            yield ConfigProblem(
                limit.key.start,
                limit.value.end,
                f"{available:g} CPUs for {workers} loader workers{each}: the kernel throttles all processes of the container "
                "when they used up their share, the one that launches GPU work too.",
                container.name,
                (Evidence(line, f"asks for {workers} workers{each}"),),
            )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 5 else None
