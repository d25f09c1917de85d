from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Severity

# Variable -> the values that switch it on, and what it does.
_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ({"1"}, "the host waits for each kernel, so that nothing overlaps"),
    "TORCH_DISTRIBUTED_DEBUG": ({"DETAIL"}, "each collective is checked across all ranks before it runs"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        {"1"},
        "each tensor is allocated by the driver, which waits for the GPU",
    ),
}
_ENV = re.compile(r"\b(\w{1,60})(?:=|\s+)[\"']?(\w+)")


class DebuggingEnvironment(ConfigRule):
    """A container sets a variable that exists for debugging.

    ## What it does
    Finds `CUDA_LAUNCH_BLOCKING=1`, `TORCH_DISTRIBUTED_DEBUG=DETAIL` and `PYTORCH_NO_CUDA_MEMORY_CACHING=1` in Dockerfiles, Compose
    files and manifests.

    ## Why it is slow
    Each kernel is waited for, each collective is checked across ranks, or each allocation goes to the driver.

    ## Fix safety
    No fix is offered.

    ## Sources
    - [PyTorch: TORCH_DISTRIBUTED_DEBUG](https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug)
    - [PyTorch: asynchronous execution](https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution)
    """

    id = "PTO035"
    name = "debugging-environment"
    family = "container"
    severity = Severity.HIGH
    kinds = frozenset({"dockerfile", "compose", "kubernetes"})
    prior = 0.8
    when_wrong = "the container is for debugging"

    VALID = (
        """
        FROM python:3.12
        ENV CUDA_LAUNCH_BLOCKING=0 OMP_NUM_THREADS=1
        """,
        """
        services:
          train:
            image: me/train
            environment: ["TORCH_DISTRIBUTED_DEBUG=INFO", WANDB_API_KEY]
        """,
        """
        apiVersion: v1
        kind: Pod
        spec:
          containers:
            - name: train
              image: me/train
              env: [{name: NCCL_DEBUG, value: INFO}, {name: TORCH_DISTRIBUTED_DEBUG, valueFrom: {}}]
        """,
    )
    INVALID = (
        Invalid("""
            FROM python:3.12
            ENV OMP_NUM_THREADS=1 CUDA_LAUNCH_BLOCKING="1"  # !
            # ~ ENV OMP_NUM_THREADS=1
        """),
        Invalid("""
            services:
              train:
                image: me/train
                environment:
                  - CUDA_LAUNCH_BLOCKING=1  # !
              other:
                image: me/other
                environment:
                  PYTORCH_NO_CUDA_MEMORY_CACHING: 1  # !
        """),
        Invalid("""
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: train
                  image: me/train
                  env:
                    - name: TORCH_DISTRIBUTED_DEBUG
                      value: "DETAIL"  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if "debug" in file.path.lower():
            return
        for container in file.containers:
            for name, (values, effect) in _VARIABLES.items():
                found = container.environment(name)
                if found is not None and found.text.upper() in values:
                    yield _problem(name, found.text, effect, found.start, found.end, container.name)
        for stage in file.dockerfile.stages if file.dockerfile is not None else ():
            for instruction in stage.instructions:
                for name, value in _ENV.findall(instruction.text) if instruction.name == "ENV" else ():
                    values, effect = _VARIABLES.get(name, (set[str](), ""))
                    if value.upper() in values:
                        yield _problem(name, value, effect, instruction.start, instruction.end, name)


def _problem(name: str, value: str, effect: str, start: int, end: int, symbol: str) -> ConfigProblem:
    message = f"`{name}={value}` is for debugging: {effect}. Set it by hand where it is needed."
    return ConfigProblem(start, end, message, symbol)
