from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.dockerfile import Instruction, Stage
from ptopt.configs.shell import installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence, Severity

_WHOLE = re.compile(r"\.\/?(?:\s|$)")


class CopiedBeforeInstall(ConfigRule):
    """The whole repository is copied into the image before its requirements are installed.

    ## What it does
    Finds `COPY . .` (or `ADD`) with a later `RUN pip install -r requirements.txt` in the same stage, where the file of
    requirements was not copied and installed before.

    ## Why it is slow
    Each layer after the copy is built again when any file of the repository changes. Installing PyTorch takes minutes and
    gigabytes, for each commit.

    ## When this is wrong
    When the requirements name the repository itself or files of it, or the image is built rarely.

    ## Example
    ```dockerfile
    FROM python:3.12
    COPY . /app
    RUN pip install -r /app/requirements.txt
    ```

    ## Use instead
    ```dockerfile
    FROM python:3.12
    COPY requirements.txt /app/
    RUN pip install -r /app/requirements.txt
    COPY . /app
    ```

    ## Fix safety
    No fix is offered: what else lies between the two cannot be judged.

    ## Sources
    - [Docker: order your layers](https://docs.docker.com/build/cache/optimize/)
    """

    id = "PTO031"
    name = "copied-before-install"
    family = "container"
    severity = Severity.MEDIUM
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
    )
    INVALID = (
        Invalid(
            """
            FROM python:3.12
            COPY . /app  # !
            WORKDIR /app
            RUN pip install -r requirements.txt
            """
        ),
        Invalid(
            """
            FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
            ADD ./ /workspace  # !
            RUN apt-get update && cd /workspace && pip3 install --no-cache-dir -r requirements.txt
            """
        ),
        Invalid(
            """
            FROM python:3.12 AS base
            RUN pip install uv
            COPY --chown=me . .  # !
            RUN uv pip install --system -r requirements/train.txt
            """
        ),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if file.dockerfile is None:
            return
        for stage in file.dockerfile.stages:
            if "tensorflow" in " ".join((file.path.lower(), *stage.bases)):
                continue
            found = _found(stage)
            if found is not None:
                copy, install, names = found
                line = file.document.line(install.start)
                yield ConfigProblem(
                    copy.start,
                    copy.end,
                    f"The whole repository is copied before `pip install -r {names}` runs (line {line}), so that any changed "
                    "file installs all packages again. Copy the file of requirements first, install, then copy the rest.",
                    stage.name or "FROM",
                    (Evidence(line, "installed again after each change"),),
                )


def _found(stage: Stage) -> tuple[Instruction, Instruction, str] | None:
    copied: Instruction | None = None
    done: set[str] = set()
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
            if copied is None:
                done.update(names)
            elif names and not done.intersection(names):
                return copied, instruction, install.requirements[0]
    return None
