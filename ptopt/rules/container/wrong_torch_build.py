from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.shell import Install, installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence, Severity
from ptopt.rules.container._images import CPU_BUILD, has_cuda

_OTHER_INDEX = re.compile(
    r"download\.pytorch\.org/whl|--index-url|-i |--torch-backend|TORCH_BACKEND|--find-links|-f "
)
_CPU_NAME = re.compile(r"(?:^|[./_-])cpu(?:$|[./_-])", re.I)


class WrongTorchBuild(ConfigRule):
    """An image gets a build of PyTorch that does not fit its hardware.

    ## What it does
    Finds the CPU build of torch in an image with CUDA, and the default build, which brings CUDA, in a Dockerfile whose name
    says that it is for CPUs.

    ## Why it is slow
    The CPU build does not see the GPU. The default build for Linux brings CUDA libraries of several gigabytes, which an image
    for CPUs carries for nothing.

    ## When this is wrong
    When the image is built for both, or the base image is used for something else than PyTorch.

    ## Fix safety
    No fix is offered.

    ## Sources
    - [PyTorch: install](https://pytorch.org/get-started/locally/)
    """

    id = "PTO034"
    name = "wrong-torch-build"
    family = "container"
    severity = Severity.HIGH
    kinds = frozenset({"dockerfile"})
    prior = 0.7
    when_wrong = "the image is built for both kinds of machines"

    VALID = (
        """
        FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
        RUN pip install torch --index-url https://download.pytorch.org/whl/cu128
        """,
        """
        FROM python:3.12
        RUN pip install torch --index-url https://download.pytorch.org/whl/cpu
        """,
        """
        FROM python:3.12-slim
        RUN pip install torch
        """,
    )
    INVALID = (
        Invalid("""
            FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
            RUN pip install torch --index-url https://download.pytorch.org/whl/cpu  # !
        """),
        Invalid("""
            FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04 AS base
            FROM base
            RUN pip install torch==2.5.1+cpu -f https://download.pytorch.org/whl/torch_stable.html  # !
        """),
        Invalid("""
            FROM ubuntu:24.04 AS cpu
            RUN pip install torch torchvision  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if file.dockerfile is None:
            return
        for stage, run in file.dockerfile.runs():
            cuda = has_cuda(stage)
            for install in installs(run.text):
                if "torch" not in install.packages:
                    continue
                if cuda is not None and CPU_BUILD.search(install.text):
                    yield ConfigProblem(
                        run.start,
                        run.end,
                        f"The CPU build of PyTorch in an image with CUDA (`{cuda}`): it does not see the GPU.",
                        stage.name or "RUN",
                        (Evidence(file.document.line(stage.base.start), "an image with CUDA"),),
                    )
                elif cuda is None and self._for_cpu(file, stage.name) and not _has_index(install, file):
                    yield ConfigProblem(
                        run.start,
                        run.end,
                        "This image is for CPUs, and the default build of PyTorch for Linux brings gigabytes of CUDA libraries. "
                        "`--index-url https://download.pytorch.org/whl/cpu` has the build without.",
                        stage.name or "RUN",
                    )
                break

    def _for_cpu(self, file: ConfigFile, stage: str) -> bool:
        name = file.path.rpartition("/")[2]
        return stage.lower() == "cpu" or (_CPU_NAME.search(name) is not None and "arm" not in name.lower())


def _has_index(install: Install, file: ConfigFile) -> bool:
    return (
        _OTHER_INDEX.search(install.text) is not None
        or "INDEX_URL" in file.text
        or "TORCH_BACKEND" in file.text
        or install.tool == "conda"
    )
