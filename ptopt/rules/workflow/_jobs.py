"""Steps of a job that install PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.configs.brings import TORCH, needs_torch
from ptopt.configs.dated import is_retired
from ptopt.configs.shell import Install, installs
from ptopt.configs.values import Entry, Mapping, Scalar, Sequence
from ptopt.rules.configs import ConfigFile

_COMPILES = re.compile(
    r"bdist_wheel|nvcc|CUDA_HOME|FORCE_CUDA|TORCH_CUDA_ARCH|setup\.py|python3? -m build|cibuildwheel|flash-attn|docker run|nccl",
    re.I,
)
# Others may install torch themselves, as what is filled in, scripts and tools may.
_PLAIN_ACTIONS = (
    "actions/",
    "astral-sh/setup-uv",
    "github/",
    "pre-commit/",
    "step-security/",
    "jlumbroso/",
    "ts-graphviz/",
)
_MAY_INSTALL = re.compile(
    r"torch|\$\{\{\s*matrix|\bcpu\b|\b(?:uv sync|poetry install|make|tox|nox|hatch|pixi|conda)\b|\.sh\b", re.I
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
    named: bool  # torch itself, not something that needs it


def torch_installs(file: ConfigFile) -> Iterator[TorchInstall]:
    """The first command that brings torch, of each job on GitHub's runners with Linux that neither compiles extensions nor works
    in a container."""
    for name, job in file.jobs:
        if "container" in job or not _on_linux(job) or is_retired(job):
            continue
        steps = tuple(step for step in job.sequence("steps") if isinstance(step, Mapping))
        first = next(_bringing(file, name, steps), None)
        if first is None or first.install.tool == "conda":
            continue
        if not any(_COMPILES.search(text) for text in _scripts(steps)):
            yield first


def _bringing(file: ConfigFile, job: str, steps: tuple[Mapping, ...]) -> Iterator[TorchInstall]:
    known = True  # what was installed so far
    for step in steps:
        action = step.scalar("uses")
        if isinstance(action, str) and not action.startswith(_PLAIN_ACTIONS):
            known = False
        run = step.entry("run")
        if run is None or not isinstance(run.value, Scalar) or run.merged:
            continue
        if "if" in step and re.search(r"macos|windows|gpu|cuda|cache-hit", str(step.scalar("if")), re.I):
            continue
        text = file.text[run.value.start : run.value.end]
        elsewhere = "working-directory" in step or re.search(r"\bcd\s", text) is not None
        at = 0
        for install in installs(text):
            known = known and _MAY_INSTALL.search(text, at, install.start) is None
            named = not install.packages.isdisjoint(TORCH | {"pytorch"})
            if named or (known and not elsewhere and needs_torch(install, file.facts)):
                start = run.value.start + install.start
                yield TorchInstall(job, steps, run, install, start, run.value.start + install.end, named)
            known = known and "git+" not in install.text
            at = install.end
        known = known and _MAY_INSTALL.search(text, at) is None


def _scripts(steps: tuple[Mapping, ...]) -> Iterator[str]:
    for step in steps:
        run = step.get("run")
        if isinstance(run, Scalar):
            yield run.text


def runs_often(file: ConfigFile) -> bool:
    """Do pull requests or pushes to branches start the workflow, of whatever files, and not releases alone?"""
    root = file.document.root
    events = None if root is None else root.get("on")
    if isinstance(events, Mapping):
        return any(
            name in events and not _is_narrow(events.mapping(name))
            for name in ("pull_request", "schedule", "push")
        )
    named = (
        {item.text for item in events if isinstance(item, Scalar)} if isinstance(events, Sequence) else set()
    )
    named |= {events.text} if isinstance(events, Scalar) else set()
    return bool(named & {"push", "pull_request", "pull_request_target"})


def _is_narrow(event: Mapping | None) -> bool:
    """Is it started by tags or releases alone, or by changes of a few files: pages, the workflow itself?"""
    if event is None:
        return False
    if "tags" in event and "branches" not in event:
        return True
    branches = [item.text for item in event.sequence("branches") if isinstance(item, Scalar)]
    if branches and all("release" in branch.lower() for branch in branches):
        return True
    paths = [item.text for item in event.sequence("paths") if isinstance(item, Scalar)]
    return bool(paths) and all(re.match(r"!|\.github/|docs?/|.*\.(?:md|rst|ya?ml)$", path) for path in paths)


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
