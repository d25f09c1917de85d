"""What reading a file costs grows about linearly with it: with 16 times the lines, at most 24 times the executed lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.project.linelength import line_length
from ptopt.source.file import SourceFile
from ptopt.suppress import find_suppressions

_SHORT, _LONG = 500, 8_000
_MOST = 24 / 16


def _pins(lines: int) -> list[str]:
    return [f"lib{number}>=1.{number}" for number in range(lines)]


def _json_lines(lines: int) -> str:
    return json.dumps({f"lib{number}": {"version": f"==1.{number}"} for number in range(lines)}, indent=1)


def _notebook(source: list[str]) -> bytes:
    cells = [
        {"cell_type": "code", "source": [line], "metadata": {}, "outputs": [], "execution_count": None}
        for line in source
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


# name -> the path of a fact file, and its text with so many lines
FILES: dict[str, tuple[str, Callable[[int], str]]] = {
    "requirements": ("requirements.txt", lambda n: "\n".join(_pins(n))),
    "requirements, continued": ("requirements.txt", lambda n: "torch>=2 \\\n" * n),
    "pyproject": (
        "pyproject.toml",
        lambda n: "[project]\ndependencies = [\n" + ",\n".join(f'"{p}"' for p in _pins(n)) + "\n]",
    ),
    "pyproject, tables": (
        "pyproject.toml",
        lambda n: "\n".join(f"[tool.a{i}]\nb = {i}" for i in range(n // 2)),
    ),
    "pyproject, poetry": (
        "pyproject.toml",
        lambda n: "[tool.poetry.dependencies]\n" + "\n".join(f'lib{i} = "^1.{i}"' for i in range(n)),
    ),
    "setup.cfg": ("setup.cfg", lambda n: "[options]\ninstall_requires =\n    " + "\n    ".join(_pins(n))),
    "setup.cfg, sections": ("setup.cfg", lambda n: "\n".join(f"[s{i}]\na = {i}" for i in range(n // 2))),
    "setup.py": (
        "setup.py",
        lambda n: (
            "from setuptools import setup\nsetup(install_requires=[\n"
            + "\n".join(f'"{p}",' for p in _pins(n))
            + "\n])"
        ),
    ),
    "setup.py, assignments": ("setup.py", lambda n: "\n".join(f"a{i} = ['torch>=2']" for i in range(n))),
    "Pipfile": ("Pipfile", lambda n: "[packages]\n" + "\n".join(f'lib{i} = ">=1.{i}"' for i in range(n))),
    "README": ("README.md", lambda n: "Install with pip, tested with PyTorch\n" * (n // 8)),
    "Pipfile.lock": ("Pipfile.lock", lambda n: f'{{"default": {_json_lines(n // 3)}}}'),
    "conda": (
        "environment.yml",
        lambda n: "dependencies:\n" + "\n".join(f"  - lib{i}=1.{i}" for i in range(n)),
    ),
    "conda, pip": (
        "environment.yml",
        lambda n: "dependencies:\n  - pip:\n" + "\n".join(f"    - {p}" for p in _pins(n)),
    ),
    "uv.lock": (
        "uv.lock",
        lambda n: "\n".join(f'[[package]]\nname = "lib{i}"\nversion = "1.{i}"' for i in range(n // 3)),
    ),
    "Dockerfile": ("Dockerfile", lambda n: "FROM a\n" + "\n".join(f"RUN pip install {p}" for p in _pins(n))),
    "Dockerfile, continued": (
        "Dockerfile",
        lambda n: "FROM a\nRUN pip install " + " \\\n  ".join(_pins(n)),
    ),
}
SOURCES: dict[str, Callable[[int], object]] = {
    "notebook, code": lambda n: SourceFile.parse("a.ipynb", _notebook([f"a{i} = {i}" for i in range(n)])),
    "notebook, magics": lambda n: SourceFile.parse("a.ipynb", _notebook([f"%time a{i}" for i in range(n)])),
    "line length": lambda n: line_length({"setup.cfg": b"[flake8]\nmax-line-length = 100\n" * n}),
    "suppressions": lambda n: find_suppressions("a = 1  # ptopt: ignore[PTO101]\n" * n).unused(frozenset()),
    "suppressions of blocks": lambda n: find_suppressions("# ptopt: ignore\na = 1\n" * (n // 2)).unused(
        frozenset()
    ),
}


def test_each_reader_has_a_file() -> None:
    named = {path for path, _ in FILES.values()}
    alike = {
        "README": "README.md",
        "requirements": "requirements.txt",
        "constraints": "requirements.txt",
        ".lock": "uv.lock",
    }
    for path in set(FACT_FILES) - {"ruff.toml", ".ruff.toml", ".style.yapf", ".flake8", "tox.ini"}:
        like = next((known for part, known in alike.items() if part in path), path)
        like = "environment.yml" if path.endswith((".yml", ".yaml")) else like
        assert (like in named) or path in ("docker/Dockerfile", "pylock.toml"), path


def _executed(call: Callable[[], object]) -> int:
    """How many lines of Python run."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def _grows_linearly(read: Callable[[int], object]) -> None:
    read(_SHORT)  # imports, and what is compiled once
    few, many = _executed(lambda: read(_SHORT)), _executed(lambda: read(_LONG))
    assert many / few <= _MOST * _LONG / _SHORT


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_reading_facts(name: str) -> None:
    path, text = FILES[name]
    _grows_linearly(lambda lines: read_facts({path: text(lines).encode()}))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_reading_sources(name: str) -> None:
    _grows_linearly(SOURCES[name])
