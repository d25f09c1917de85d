from __future__ import annotations

from collections.abc import Iterator

from ptopt.configs.dockerfile import Instruction
from ptopt.configs.shell import installs
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Evidence, Severity
from ptopt.rules.container._images import CONDITIONAL, has_torch


class TorchInstalledAgain(ConfigRule):
    """An image that has PyTorch installs it once more.

    ## What it does
    Finds `pip install torch` or `conda install pytorch` in a stage whose base image brings PyTorch, and two installations of
    it in one stage.

    ## Why it is slow
    The first copy stays in its layer although the second one hides it: gigabytes more to build, push and pull. A build of
    NVIDIA's images is also replaced by a generic one.

    ## When this is wrong
    When another version is needed than any tag of the base image has; then start from an image without PyTorch.

    ## Example
    ```dockerfile
    FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
    RUN pip install torch==2.9.0
    ```

    ## Use instead
    ```dockerfile
    FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime
    ```

    ## Fix safety
    No fix is offered: which image fits cannot be judged.

    ## Sources
    - [Docker: image layers](https://docs.docker.com/get-started/docker-concepts/building-images/understanding-image-layers/)
    """

    id = "PTO033"
    name = "torch-installed-again"
    family = "container"
    severity = Severity.MEDIUM
    kinds = frozenset({"dockerfile"})
    prior = 0.7
    when_wrong = "no tag of the base image has the version that is needed"

    VALID = (
        """
        FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
        RUN pip install --no-cache-dir transformers
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
        Invalid(
            """
            FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
            RUN pip install --no-cache-dir torch==2.9.0  # !
            """
        ),
        Invalid(
            """
            FROM nvcr.io/nvidia/pytorch:24.10-py3 AS base
            FROM base
            RUN pip install torch torchvision --index-url https://download.pytorch.org/whl/cu124  # !
            """
        ),
        Invalid(
            """
            FROM python:3.12
            RUN pip install --no-cache-dir torch==2.4.0
            RUN pip install --no-cache-dir --upgrade torch==2.5.0  # !
            """
        ),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for stage in file.dockerfile.kept if file.dockerfile is not None else ():
            image = has_torch(stage)
            first: Instruction | None = None
            for run in stage.instructions:
                if (
                    run.name != "RUN"
                    or CONDITIONAL.search(run.text)
                    or not any(i.packages & {"torch", "pytorch"} for i in installs(run.text))
                ):
                    continue
                if image is not None:
                    yield ConfigProblem(
                        run.start,
                        run.end,
                        f"`{image}` brings PyTorch, and this installs it once more: the first copy stays in the image, with "
                        "gigabytes. Start from an image without PyTorch, or take the tag with the version you need.",
                        stage.name or "FROM",
                        (Evidence(file.document.line(stage.base.start), "brings PyTorch"),),
                    )
                elif first is not None:
                    line = file.document.line(first.start)
                    yield ConfigProblem(
                        run.start,
                        run.end,
                        f"PyTorch is installed once more than in line {line}: the first copy stays in its layer, with "
                        "gigabytes.",
                        stage.name or "FROM",
                        (Evidence(line, "installed first"),),
                    )
                first = first or run
