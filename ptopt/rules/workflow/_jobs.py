"""Steps of a job that install PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.configs.shell import Install, installs
from ptopt.configs.values import Entry, Mapping, Scalar, Sequence
from ptopt.rules.configs import ConfigFile

_COMPILES = re.compile(
    r"bdist_wheel|nvcc|CUDA_HOME|FORCE_CUDA|TORCH_CUDA_ARCH|setup\.py|python3? -m build|cibuildwheel|flash-attn|docker run|nccl",
    re.I,
)
_LINUX = re.compile(r"ubuntu-(?:latest|\d\d\.\d\d)(?:-arm)?$")


@dataclass(frozen=True, eq=False)
class TorchInstall:
    """A command in a step. `start` and `end` are its offsets in the file."""

    job: str
    steps: tuple[Mapping, ...]
    run: Entry
    install: Install
    start: int
    end: int


def torch_installs(file: ConfigFile) -> Iterator[TorchInstall]:
    """The first command that names torch, of each job on GitHub's runners with Linux that neither compiles extensions nor works
    in a container."""
    for name, job in file.jobs:
        if "container" in job or not _on_linux(job):
            continue
        steps = tuple(step for step in job.sequence("steps") if isinstance(step, Mapping))
        found = (
            TorchInstall(
                name, steps, run, install, run.value.start + install.start, run.value.start + install.end
            )
            for step in steps
            if "if" not in step or not re.search(r"macos|windows|gpu|cuda", str(step.scalar("if")), re.I)
            if (run := step.entry("run")) is not None and isinstance(run.value, Scalar) and not run.merged
            for install in installs(file.text[run.value.start : run.value.end])
            if install.packages & {"torch", "torchvision", "torchaudio"} and install.tool != "conda"
        )
        first = next(found, None)
        if first is not None and not any(_COMPILES.search(text) for text in _scripts(steps)):
            yield first


def _scripts(steps: tuple[Mapping, ...]) -> Iterator[str]:
    for step in steps:
        run = step.get("run")
        if isinstance(run, Scalar):
            yield run.text


def runs_often(file: ConfigFile) -> bool:
    """Do pull requests or pushes to branches start the workflow, and not releases alone?"""
    root = file.document.root
    events = None if root is None else root.get("on")
    if isinstance(events, Mapping):
        push = events.mapping("push")
        tags_only = push is not None and "tags" in push and "branches" not in push
        return "pull_request" in events or "schedule" in events or ("push" in events and not tags_only)
    named = (
        {item.text for item in events if isinstance(item, Scalar)} if isinstance(events, Sequence) else set()
    )
    named |= {events.text} if isinstance(events, Scalar) else set()
    return bool(named & {"push", "pull_request", "pull_request_target"})


def _on_linux(job: Mapping) -> bool:
    """Does the job run on a hosted runner with Linux and without a GPU, each time or in a matrix?"""
    runner = job.get("runs-on")
    if isinstance(runner, Scalar):
        if _LINUX.match(runner.text):
            return True
        key = re.fullmatch(r"\$\{\{\s*matrix\.(\w+)\s*\}\}", runner.text)
        values = job.sequence("strategy", "matrix", key[1]) if key else ()
        return any(isinstance(value, Scalar) and _LINUX.match(value.text) for value in values)
    return False
