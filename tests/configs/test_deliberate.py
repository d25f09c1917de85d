"""A comment that gives a reason, a run that is short on purpose, and files of a time that is over."""

from __future__ import annotations

import pytest

from ptopt.configs.dated import is_dated, is_retired
from ptopt.configs.deliberate import is_explained, is_trial
from ptopt.configs.dockerfile import read_dockerfile
from ptopt.configs.reading import read_text
from ptopt.configs.values import Document, Mapping


def mapping(text: str) -> Mapping:
    document = read_text("yaml", text)
    assert isinstance(document, Document) and document.root is not None
    return document.root


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("x: 0  # avoids a deadlock", True),
        ("x: 0  # because of a deadlock", True),
        ("# because of memory\n# see the issue\nx: 0", True),
        ("# because of memory\ny: 1\nx: 0", False),
        ("# the loader\nx: 0", False),
        ("x: 0", False),
    ],
)
def test_a_comment_gives_the_reason(text: str, explained: bool) -> None:
    lines = text.split("\n")
    assert is_explained(lines, len(lines)) == explained


@pytest.mark.parametrize(
    "text", ["max_steps: 10", "fast_dev_run: true", "limit_train_batches: 0.1", "overfit_batches: 1"]
)
def test_a_trial(text: str) -> None:
    assert is_trial("conf/a.yaml", mapping(text))


@pytest.mark.parametrize(
    "text",
    [
        "max_steps: -1",
        "max_steps: 10000",
        "fast_dev_run: false",
        "limit_train_batches: 1.0",
        "overfit_batches: 0.0",
    ],
)
def test_no_trial(text: str) -> None:
    assert not is_trial("conf/a.yaml", mapping(text)) and is_trial("conf/debug.yaml", mapping(text))


@pytest.mark.parametrize(
    ("text", "dated"),
    [
        ("FROM nvidia/cuda:10.2-devel-ubuntu18.04", True),
        ("FROM nvidia/cuda:11.1-base", True),
        ("FROM nvidia/cuda:11.1.1-base-ubuntu20.04", False),
        ("FROM nvidia/cuda:12.8.1-devel-ubuntu24.04", False),
        ("FROM python:3.7-slim", True),
        ("FROM python:3.12-slim", False),
        ("FROM python:3.12\nRUN conda install python=3.6", True),
        ("FROM python:3.12\nRUN pip install torch==1.6.0", True),
        ("FROM python:3.12\nRUN pip install torch==1.13.1", False),
        ("FROM nvcr.io/nvidia/pytorch:20.06-py3", True),
        ("FROM nvcr.io/nvidia/pytorch:25.01-py3", False),
    ],
)
def test_images_of_a_time_that_is_over(text: str, dated: bool) -> None:
    read = read_dockerfile(text + "\n")
    assert read is not None and is_dated(read) == dated


@pytest.mark.parametrize(
    ("text", "retired"),
    [
        ("runs-on: ubuntu-20.04\nsteps: []", True),
        ("runs-on: ubuntu-22.04\nsteps: []", False),
        ("runs-on: ubuntu-latest\nsteps: [{uses: actions/upload-artifact@v3}]", True),
        (
            "runs-on: ubuntu-latest\nsteps: [{uses: actions/upload-artifact@v4}, {uses: actions/checkout@v10}]",
            False,
        ),
    ],
)
def test_jobs_that_github_does_not_run_any_more(text: str, retired: bool) -> None:
    assert is_retired(mapping(text)) == retired
