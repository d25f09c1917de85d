from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import OPS, TRAIN


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def checkout(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch that brings `loss.item()` into the loop of `main`."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*args: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *args], cwd=tree, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (tree / "train.py").write_text(TRAIN.replace("        total += loss.item()\n", ""))
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("checkout", "-q", "-b", "branch")
    (tree / "train.py").write_text(TRAIN)
    git("commit", "-q", "-a", "-m", "two")
    return tree


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    def cell(kind: str, source: str) -> dict[str, Any]:
        return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}

    one, two = OPS.split("\n\n\n")[1:]
    cells = [cell("markdown", "# Title\n"), cell("code", f"%matplotlib inline\n{TRAIN}")]
    cells += [cell("code", f"import torch\n\n{one}\n"), cell("code", two.rstrip("\n"))]
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "nb.ipynb").write_text(json.dumps(document, indent=1))
    return tmp_path / "nb.ipynb"
