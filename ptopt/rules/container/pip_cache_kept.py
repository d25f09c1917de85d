from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.brings import copied_with_torch
from ptopt.configs.dockerfile import Stage
from ptopt.configs.shell import Install, installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Edit, Fix, Safety, Severity
from ptopt.rules.container._images import CONDITIONAL, CPU_BUILD, has_torch

_NO_CACHE = re.compile(
    r"--no-cache(?:-dir)?\b|PIP_NO_CACHE_DIR=|pip3? cache purge|rm -rf? \S*(?:\.cache|/root/\.cache)|UV_NO_CACHE"
)
_HEAVY = frozenset({"torch", "vllm"})
_CHOSEN = re.compile(r"NO_CACHE|PIP_CACHE_DIR|INDEX_URL\S*/whl/cpu")  # by the environment
_NO_CUDA = re.compile(r"ascend|/cann|neuron|habana|gaudi|xpu|rocm", re.I)
_OLD = re.compile(r"\btorch==1\.")


class PipCacheKept(ConfigRule):
    """The image keeps the downloaded wheels of PyTorch beside the installed package.

    ## What it does
    Finds `RUN pip install` of torch with CUDA, or of vLLM, without `--no-cache-dir`, a cache mount or `PIP_NO_CACHE_DIR`, in an
    image that has no torch yet.

    ## Why it is slow
    pip stores each wheel in its cache, which becomes part of the layer: gigabytes that each push and each start of a new
    node transfers. A cache mount keeps them outside of the image and makes the next build quicker as well.

    ## Fix safety
    Safe: the packages are the same; the wheels are not stored.

    ## Sources
    - [Docker: cache mounts](https://docs.docker.com/build/cache/optimize/#use-cache-mounts)
    - [pip: caching](https://pip.pypa.io/en/stable/topics/caching/)
    """

    id = "PTO032"
    name = "pip-cache-kept"
    family = "container"
    severity = Severity.LOW
    kinds = frozenset({"dockerfile"})
    prior = 0.6
    when_wrong = "the stage is no part of the final image, or a later step reads the cache"

    VALID = (
        """
        FROM python:3.12
        RUN pip install --no-cache-dir torch==2.9.0
        """,
        """
        FROM python:3.12
        RUN --mount=type=cache,target=/root/.cache/pip pip install torch
        """,
        """
        FROM python:3.12
        ENV PIP_NO_CACHE_DIR=1
        RUN pip install torch
        """,
        """
        FROM python:3.12
        RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
        """,
        """
        FROM python:3.12 AS build
        RUN pip install torch
        FROM python:3.12-slim
        COPY --from=build /opt /opt
        """,
    )
    INVALID = (
        Invalid("""
            FROM python:3.12
            RUN pip install torch==2.9.0  # !
            # + RUN pip install --no-cache-dir torch==2.9.0
        """),
        Invalid("""
            FROM nvidia/cuda:12.8.1-devel-ubuntu24.04
            RUN python3 -m pip install torch torchvision --index-url https://download.pytorch.org/whl/cu128  # !
            # + RUN python3 -m pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cu128
        """),
        Invalid("""
            FROM python:3.12
            RUN apt-get update && pip3 install vllm  # !
            # + RUN apt-get update && pip3 install --no-cache-dir vllm
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if file.dockerfile is None or _CHOSEN.search(_settings(file.dockerfile.stages)):
            return
        seen: list[Stage] = []
        for stage, run in file.dockerfile.runs():
            if stage not in file.dockerfile.kept or "type=cache" in run.flags or _NO_CACHE.search(run.text):
                continue
            if CONDITIONAL.search(run.text) or (has_torch(stage) and "vllm" not in run.text):
                continue  # it may not run, or finds torch installed
            raw = file.text[run.start : run.end]
            heavy = [
                install
                for install in installs(raw)
                if install.tool == "pip"
                and not CPU_BUILD.search(install.text)
                and (
                    install.packages & _HEAVY
                    or (stage not in seen and copied_with_torch(install, run, file.path, stage, file.facts))
                )
            ]
            if any(
                i.packages & _HEAVY or copied_with_torch(i, run, file.path, stage, file.facts)
                for i in installs(raw)
            ):
                seen.append(stage)  # what comes later finds it installed
            if heavy:
                named = ", ".join(f"`{name}`" for name in sorted(heavy[0].packages & _HEAVY)[:3]) or "torch"
                small = "a gigabyte or two" if _OLD.search(heavy[0].text) else "gigabytes"
                size = "hundreds of megabytes" if any(map(_NO_CUDA.search, stage.bases)) else small
                yield ConfigProblem(
                    run.start,
                    run.end,
                    f"pip's cache stays in this layer, with the wheels of {named} once more: {size} in each push and pull. "
                    "Use `--no-cache-dir`, or a cache mount, which also speeds up the next build.",
                    stage.name or "RUN",
                    fix=Fix(Safety.SAFE, tuple(_edit(file, run.start, install) for install in heavy)),
                )


def _settings(stages: tuple[Stage, ...]) -> str:
    """The environment that the stages set."""
    return " ".join(i.text for stage in stages for i in stage.instructions if i.name in ("ENV", "ARG"))


def _edit(file: ConfigFile, start: int, install: Install) -> Edit:
    at = file.document.byte(start + install.after)
    return Edit(at, at, " --no-cache-dir")
