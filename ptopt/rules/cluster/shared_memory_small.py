from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.containers import Container
from ptopt.configs.values import Mapping
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence, Node, Scalar

_OTHER = re.compile(r"tensorflow|\bjax|[-_]tf[-_]|TFJob")
_WORKERS = ("workers", "num-workers", "dataloader-num-workers", "data-workers", "num-data-workers")
_PARALLEL = ("tensor-parallel-size", "tp", "tp-size", "num-shard", "pipeline-parallel-size")


class SharedMemorySmall(ConfigRule):
    """A container that trains on GPUs has 64 MB of shared memory.

    ## What it does
    Finds containers with several GPUs, or loader workers in their command, that run a training script, and servers with tensor
    parallelism, where nothing is mounted on `/dev/shm`: in Kubernetes an `emptyDir` with `medium: Memory`, in Compose `shm_size` or `ipc: host`.

    ## Why it is slow
    Worker processes of a data loader hand batches over in shared memory, and NCCL uses it between the GPUs of a node. With the
    64 MB of the container runtime, workers die with a bus error, or are switched off to avoid it.

    ## When this is wrong
    When the script uses no worker processes and one GPU, or the cluster sets the size by itself.

    ## Fix safety
    No fix is offered: the size counts against the memory limit of the pod.

    ## Sources
    - [PyTorch: docker image and shared memory](https://github.com/pytorch/pytorch#docker-image)
    - [Kubernetes: emptyDir](https://kubernetes.io/docs/concepts/storage/volumes/#emptydir)
    """

    id = "PTO051"
    name = "shared-memory-small"
    family = "cluster"
    kinds = frozenset({"kubernetes", "compose"})
    prior = 0.75
    when_wrong = "there are no worker processes and one GPU, or the cluster sets the size"

    VALID = (
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: train
              image: registry/train:1
              command: [torchrun, train.py]
              resources: {limits: {nvidia.com/gpu: 8}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
        """,
        """
        services:
          train:
            image: registry/train:1
            command: python train.py
            gpus: all
            shm_size: 16gb
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: train
              image: registry/train:1
              command: [torchrun, --nproc-per-node=1, train.py, --workers=0]
              resources: {limits: {nvidia.com/gpu: 1}}
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: web
              image: nginx
        """,
    )
    INVALID = (
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: train
                  image: registry/train:1
                  command: [torchrun, --nproc-per-node=8, train.py]
                  resources:
                    limits:
                      nvidia.com/gpu: 8  # !
        """),
        Invalid("""
            services:
              train:
                image: registry/train:1
                command: python train.py --epochs 3
                gpus: all  # !
        """),
        Invalid("""
            apiVersion: apps/v1
            kind: Deployment
            spec:
              template:
                spec:
                  containers:
                    - name: server
                      image: vllm/vllm-openai:v0.10.0
                      args: ["--model", "some/model", "--tensor-parallel-size", "4"]
                      resources:
                        limits:
                          nvidia.com/gpu: "4"  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for container in file.containers:
            gpu = container.gpu
            if (
                _OTHER.search(f"{container.kind} {container.image} {container.command}")
                or gpu is None
                or gpu.merged
                or not (_shares(container, gpu.value) or _parallel(container, gpu.value))
                or _has_room(container)
            ):
                continue
            what = "This container trains" if container.trains else "This server is spread over several GPUs"
            cure = (
                "Mount an `emptyDir` with `medium: Memory` on `/dev/shm`."
                if container.pod is not None
                else "Set `shm_size`, such as `16gb`, or `ipc: host`."
            )
            why = "loader workers and NCCL" if container.trains else "NCCL and the workers"
            line = file.document.line(container.mapping.start)
            yield ConfigProblem(
                gpu.key.start,
                gpu.key.end,
                f"{what} with the runtime's 64 MB of `/dev/shm`, which {why} share between processes. {cure}",
                container.name,
                (Evidence(line, "the container"),),
            )


def _shares(container: Container, gpu: Node) -> bool:
    """Does it train with several processes: loader workers that its command asks for, or those of several GPUs?"""
    if not container.trains:
        return False
    workers = container.option(*_WORKERS)
    if workers is not None and workers.isdigit():
        return int(workers) > 0 or _several(container, gpu)
    return _several(container, gpu)


def _several(container: Container, gpu: Node) -> bool:
    """Does it have more than one GPU, and start no single process?"""
    if container.option("nproc-per-node", "num-processes") == "1":
        return False
    return not isinstance(gpu, Scalar) or gpu.number is None or gpu.number > 1


def _parallel(container: Container, gpu: Node) -> bool:
    """Is it a server that spreads a model over several GPUs of its node?"""
    value = container.option(*_PARALLEL)
    several = isinstance(gpu, Scalar) and gpu.number is not None and gpu.number > 1
    return several and container.serves and value is not None and value.isdigit() and int(value) > 1


def _has_room(container: Container) -> bool:
    if any(path.rstrip("/") in ("/dev/shm", "/dev") for path, _ in container.mounts()):  # noqa: S108 (a path in the container)
        return True
    mapping = container.mapping
    host = container.pod is not None and container.pod.scalar("hostIPC") is True
    shared = "shm_size" in mapping or mapping.scalar("ipc") == "host" or "extends" in mapping
    return host or shared or _merged(mapping)


def _merged(mapping: Mapping) -> bool:
    return any(entry.merged and entry.key.text in ("volumes", "volumeMounts") for entry in mapping)
