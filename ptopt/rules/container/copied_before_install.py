from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.dockerfile import Instruction, Stage
from ptopt.configs.shell import installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence
from ptopt.rules.container._images import has_torch

_HEAVY = frozenset({"torch", "pytorch", "vllm"})
_UNSURE = 0.35  # files of requirements of which nobody knows that they bring torch: most install in seconds
_WHOLE = re.compile(r"\.\/?(?:\s|$)")


class CopiedBeforeInstall(ConfigRule):
    """The whole repository is copied into the image before its requirements are installed.

    ## What it does
    Finds `COPY . .` (or `ADD`) with a later installation of PyTorch or vLLM in the same stage: by name, or with a file of requirements
    that names torch and was not copied and installed before.

    ## Why it is slow
    Each layer after the copy is built again when any file of the repository changes. Installing PyTorch takes minutes and
    gigabytes, for each commit.

    ## Fix safety
    No fix is offered: what else lies between the two cannot be judged.

    ## Sources
    - [Docker: order your layers](https://docs.docker.com/build/cache/optimize/)
    """

    id = "PTO031"
    name = "copied-before-install"
    family = "container"
    kinds = frozenset({"dockerfile"})
    prior = 0.8
    when_wrong = "the requirements name files of the repository, or the image is built rarely"

    VALID = (
        """
        FROM python:3.12
        COPY requirements.txt /app/
        RUN pip install -r /app/requirements.txt
        COPY . /app
        """,
        """
        FROM python:3.12
        COPY . /app
        RUN pip install -e /app
        """,
        """
        FROM python:3.12
        COPY requirements.txt .
        RUN pip install -r requirements.txt
        COPY . .
        RUN pip install -r requirements.txt
        """,
        """
        FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime
        COPY . .
        RUN pip install torch torchmetrics
        """,
    )
    INVALID = (
        Invalid("""
            FROM python:3.12
            COPY . /app  # !
            WORKDIR /app
            RUN pip install -r requirements.txt
        """),
        Invalid("""
            FROM nvidia/cuda:12.8.1-devel-ubuntu24.04
            ADD ./ /workspace  # !
            RUN apt-get update && cd /workspace && pip3 install --no-cache-dir torch==2.9.0 torchvision
        """),
        Invalid("""
            FROM python:3.12 AS base
            RUN pip install uv
            COPY --chown=me . .  # !
            RUN uv pip install --system vllm
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if file.dockerfile is None:
            return
        with_torch = {path.rpartition("/")[2] for path in file.facts.with_torch}
        for stage in file.dockerfile.kept:
            if "tensorflow" in " ".join((file.path.lower(), *stage.bases)):
                continue
            found = _found(stage, with_torch)
            if found is not None:
                copy, install, what, sure = found
                line = file.document.line(install.start)
                yield ConfigProblem(
                    copy.start,
                    copy.end,
                    f"The whole repository is copied before {what} (line {line}), so that each changed file has it done again: "
                    "minutes and gigabytes where PyTorch is among it. Install first, with the files that this needs, then copy the rest.",
                    stage.name or "FROM",
                    (Evidence(line, "done again after each change"),),
                    confidence=None if sure else _UNSURE,
                )


def _found(stage: Stage, with_torch: set[str]) -> tuple[Instruction, Instruction, str, bool] | None:
    """The copy, what is installed behind it, in words, and whether that is known to bring torch.

    `with_torch`: names of files of requirements that name it.
    """
    copied: Instruction | None = None
    done: set[str] = set()
    unsure: tuple[Instruction, Instruction, str, bool] | None = None
    has = has_torch(stage) is not None
    for instruction in stage.instructions:
        if (
            instruction.name in ("COPY", "ADD")
            and "--from" not in instruction.flags
            and _WHOLE.match(instruction.text)
        ):
            copied = copied or instruction
        if instruction.name != "RUN":
            continue
        for install in installs(instruction.text):
            names = [name.rpartition("/")[2] for name in install.requirements]
            heavy = sorted(install.packages & _HEAVY)
            if copied is None:
                done.update((*names, *heavy))
                has |= bool(heavy) or not with_torch.isdisjoint(names)
                continue
            if heavy and not has and "nightly" not in install.text:  # which is to be fresh
                return copied, instruction, f"`{heavy[0]}` is installed", True
            has |= bool(heavy)
            if names and not done.intersection(names):
                what = f"`pip install -r {install.requirements[0]}` runs"
                if not has and not with_torch.isdisjoint(names):
                    return copied, instruction, what, True
                unsure = unsure or (copied, instruction, what, False)
    return unsure
