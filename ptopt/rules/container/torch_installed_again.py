from __future__ import annotations

import re
from collections.abc import Iterator

from ptopt.configs.dockerfile import Instruction, Stage
from ptopt.configs.shell import Install, installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence
from ptopt.rules.container._images import CONDITIONAL, has_torch

_TAG = re.compile(r"(?:docker\.io/)?pytorch/pytorch:(\d+\.\d+(?:\.\d+)?)-")
_PIN = re.compile(r"(?<![\w-])(?:py)?torch=?==?v?(\d+(?:\.\d+)*)")
_ANYWAY = re.compile(
    r"(?<![\w-])(?:--upgrade|-U|--force-reinstall|--reinstall|--ignore-installed|-I|--pre)(?![\w-])"
)
_REMOVED = re.compile(r"\b(?:pip3?|conda)\s+(?:uninstall|remove)\b[^&|;]{0,200}\b(?:py)?torch\b")
_OWN_BUILD, _UNKNOWN, _REMOVED_VERSION = "own", "?", "removed"


class TorchInstalledAgain(ConfigRule):
    """An image that has PyTorch installs it once more.

    ## What it does
    Finds the installation of another version of PyTorch, or of any after it was uninstalled, in a stage whose base image brings it
    or that has installed it before. What pip finds installed already is left alone.

    ## Why it is slow
    The first copy stays in its layer although the second one hides it: gigabytes more to build, push and pull. A build of
    NVIDIA's images is also replaced by a generic one.

    ## When this is wrong
    When another version is needed than any tag of the base image has; then start from an image without PyTorch.

    ## Fix safety
    No fix is offered: which image fits cannot be judged.

    ## Sources
    - [Docker: image layers](https://docs.docker.com/get-started/docker-concepts/building-images/understanding-image-layers/)
    """

    id = "PTO033"
    name = "torch-installed-again"
    family = "container"
    kinds = frozenset({"dockerfile"})
    prior = 0.7
    when_wrong = "no tag of the base image has the version that is needed"

    VALID = (
        """
        FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
        RUN pip install --no-cache-dir torch==2.5.1 transformers
        """,
        """
        FROM nvcr.io/nvidia/pytorch:24.10-py3
        RUN pip install torch torchvision
        """,
        """
        FROM python:3.12
        RUN pip install --no-cache-dir torch
        """,
        """
        FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
        RUN pip uninstall -y torch && echo none
        """,
        """
        FROM python:3.12 AS builder
        RUN pip install --no-cache-dir torch==2.9.0
        RUN pip install --no-cache-dir --reinstall torch==2.9.0+cpu
        FROM python:3.12-slim
        COPY --from=builder /usr/local/lib /usr/local/lib
        """,
    )
    INVALID = (
        Invalid("""
            FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
            # ~ FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime
            RUN pip install --no-cache-dir torch==2.9.0  # !
            # ~
        """),
        Invalid("""
            FROM nvcr.io/nvidia/pytorch:24.10-py3 AS base
            FROM base
            RUN pip uninstall -y torch
            RUN pip install torch torchvision --index-url https://download.pytorch.org/whl/cu124  # !
        """),
        Invalid("""
            FROM python:3.12
            RUN pip install --no-cache-dir torch==2.4.0
            RUN pip install --no-cache-dir --upgrade torch==2.5.0  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for stage in file.dockerfile.kept if file.dockerfile is not None else ():
            image = has_torch(stage)
            has = _of_image(image) if image is not None else None
            first: Instruction | None = None
            for run in stage.instructions:
                if run.name != "RUN" or CONDITIONAL.search(run.text):
                    continue
                if _REMOVED.search(run.text) and has is not None:
                    has = _REMOVED_VERSION
                found = [i for i in installs(run.text) if i.packages & {"torch", "pytorch"}]
                for install in found:
                    if has is not None and _installs_again(install, has):
                        yield self._problem(file, stage, run, first, image)
                        break
                    has = _wanted(install) or has or _UNKNOWN
                if found:
                    first = first or run
                    has = _wanted(found[-1]) or has

    def _problem(
        self, file: ConfigFile, stage: Stage, run: Instruction, first: Instruction | None, image: str | None
    ) -> ConfigProblem:
        if image is not None:
            line = file.document.line(stage.base.start)
            return ConfigProblem(
                run.start,
                run.end,
                f"`{image}` brings PyTorch, and this installs another: the first copy stays in the image, with "
                "gigabytes. Start from an image without PyTorch, or take the tag with the version you need.",
                stage.name or "FROM",
                (Evidence(line, "brings PyTorch"),),
            )
        line = file.document.line((first or run).start)
        return ConfigProblem(
            run.start,
            run.end,
            f"Another PyTorch than in line {line} is installed: the first copy stays in its layer, with gigabytes.",
            stage.name or "FROM",
            (Evidence(line, "installed first"),),
        )


def _of_image(image: str) -> str:
    """The version that the image has: a release, "own" where it is none of the releases, or "?"."""
    release = _TAG.match(image)
    return release[1] if release is not None else _OWN_BUILD if "nvcr.io/" in image else _UNKNOWN


def _wanted(install: Install) -> str | None:
    """The release of torch that the command asks for."""
    found = _PIN.search(install.text)
    return found[1] if found is not None else None


def _installs_again(install: Install, has: str) -> bool:
    """Does the command install torch where `has` is installed? pip leaves what satisfies it alone."""
    if has == _REMOVED_VERSION or _ANYWAY.search(install.text):
        return True
    wanted = _wanted(install)
    if wanted is None or has == _UNKNOWN:
        return False
    shorter = min(wanted, has, key=len)
    return not (wanted + ".").startswith(shorter + ".") or not (has + ".").startswith(shorter + ".")
