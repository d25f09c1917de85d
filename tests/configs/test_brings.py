"""Torch that comes with the project or a file of requirements, in workflows and images."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import read_facts
from ptopt.review import review_files

NEEDS_TORCH = {
    "pyproject.toml": b'[project]\nname = "a"\ndependencies = ["torch>=2.2"]\n',
    "requirements.txt": b"-r requirements/base.txt\nnumpy\n",
    "requirements/base.txt": b"lightning>=2\n",
    "requirements-dev.txt": b"ruff\n",
}
WORKFLOW = """
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - {before}
      - run: {run}
"""


def found(path: str, text: str, files: dict[str, bytes] = NEEDS_TORCH) -> list[tuple[str, int]]:
    review = review_files(
        [whole_file(path, textwrap.dedent(text).encode())],
        config=Config(), facts=read_facts(files), limit_to_change=False,
    )  # fmt: skip
    return [(finding.name, finding.span.start) for finding in review.findings]


def in_workflow(
    run: str, before: str = "run: python --version", files: dict[str, bytes] = NEEDS_TORCH
) -> bool:
    text = WORKFLOW.replace("{before}", before).replace("{run}", run)
    return found(".github/workflows/ci.yml", text, files) == [("cuda-build-on-cpu-runner", 9)]


@pytest.mark.parametrize(
    "run",
    ["pip install -e .", "pip install .[test]", "pip install -r requirements.txt", "uv pip install -e ."],
)
def test_the_project_brings_the_cuda_build(run: str) -> None:
    assert in_workflow(run)


@pytest.mark.parametrize(
    ("run", "before"),
    [
        ("pip install --no-deps -e .", ""),
        ("pip install -r requirements-dev.txt", ""),
        ("pip install -e .[ci_cpu]", ""),
        ("pip install -e . -c constraints.txt", ""),
        ("cd sub && pip install -e .", ""),
        ("pip install -e .", "run: pip install torch --index-url https://download.pytorch.org/whl/cpu"),
        ("pip install -e .", "run: ${{ matrix.torch-install }}"),
        ("pip install -e .", "run: conda install pytorch"),
        ("pip install -e .", "run: ./scripts/setup.sh"),
        ("pip install -e .", "run: pip install git+https://github.com/a/b"),
        ("pip install -e .", "uses: ./.github/actions/setup"),
        ("pip install -e .", "uses: own/action/setup@v1"),
    ],
)
def test_what_does_not_or_may_not(run: str, before: str) -> None:
    assert not in_workflow(run, before or "run: python --version")


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": b'[project]\nname = "a"\noptional-dependencies = {gpu = ["torch"]}\n'},
        {"requirements.txt": b"--extra-index-url https://download.pytorch.org/whl/cpu\ntorch\n"},
        {
            "pyproject.toml": NEEDS_TORCH["pyproject.toml"]
            + b'[[tool.uv.index]]\nurl = "https://download.pytorch.org/whl/cpu"\n'
        },
    ],
)
def test_projects_that_choose_another_build_or_need_none(files: dict[str, bytes]) -> None:
    assert not in_workflow("pip install -e . -r requirements.txt", files=files)


def test_images() -> None:
    image = "FROM python:3.12\nCOPY requirements.txt .\nRUN pip install -r requirements.txt\nCOPY . .\n"
    assert found("Dockerfile", image) == [("pip-cache-kept", 3)]
    assert not found("Dockerfile", image.replace("COPY requirements.txt .\n", "RUN git clone https://a/b\n"))
    assert not found(
        "Dockerfile", image.replace("python:3.12", "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime")
    )
    assert not found("other/Dockerfile", image)
    copied = "FROM python:3.12\nCOPY . .\nRUN pip install --no-cache-dir -r requirements.txt\n"
    assert found("Dockerfile", copied) == [("copied-before-install", 2)]
    assert not found("Dockerfile", copied, {"requirements.txt": b"numpy\n"})
