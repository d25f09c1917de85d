"""Is a file of a time that is over, so that what it says can hardly be run any more?"""

from __future__ import annotations

import re

from ptopt.configs.dockerfile import Dockerfile
from ptopt.configs.values import Mapping, Scalar

# NVIDIA took the images of CUDA before 11 and those without a patch version from Docker Hub and NGC.
_WITHDRAWN = re.compile(r"(?:docker\.io/)?(?:nvcr\.io/)?nvidia/cuda:(?:[789]\.|10\.|11\.\d(?!\d|\.\d))")
_OLD_BASE = re.compile(
    r"(?:ubuntu|debian):(?:14|16|18)\.04|python:(?:2|3\.[0-7])(?![\d])|(?:ubuntu(?:14|16|18)\.04)|"
    r"pytorch/pytorch:(?:nightly-devel-cuda9|0\.|1\.[0-8][.-])|nvcr\.io/nvidia/pytorch:(?:1\d|20)\."
)
_OLD_PYTHON = re.compile(
    r"\bpython(?:=|==|-)?3\.[3-7]\b|\bPYTHON(?:_?VER(?:SION)?)?=[\"']?3\.[3-7]\b|\bpy3[67]_", re.I
)
_OLD_TORCH = re.compile(r"\btorch==(?:0|1\.[0-7])\.|\bpytorch==?(?:0|1\.[0-7])\b")
_RETIRED = re.compile(r"ubuntu-(?:16|18|20)\.04")
# GitHub fails a job that uses these; the first versions of the others are of 2019 and 2020.
_RETIRED_ACTIONS = re.compile(
    r"actions/(?:(?:upload|download)-artifact@v[123]|cache@v[12]|(?:checkout|setup-python)@v1)(?![\d])"
)


def is_dated(dockerfile: Dockerfile) -> bool:
    """Does the image start from a withdrawn image, or need a Python or torch of before 2021?"""
    if any(_WITHDRAWN.match(image) or _OLD_BASE.match(image) for s in dockerfile.stages for image in s.bases):
        return True
    texts = [i.text for s in dockerfile.stages for i in s.instructions if i.name in ("RUN", "ENV", "ARG")]
    return any(_OLD_PYTHON.search(text) or _OLD_TORCH.search(text) for text in texts)


def is_retired(job: Mapping) -> bool:
    """Does the job need a runner or an action that GitHub has switched off, or actions of the first hour?"""
    runner = job.get("runs-on")
    if isinstance(runner, Scalar) and _RETIRED.match(runner.text):
        return True
    uses = (step.scalar("uses") for step in job.sequence("steps") if isinstance(step, Mapping))
    return any(isinstance(action, str) and _RETIRED_ACTIONS.match(action) for action in uses)
