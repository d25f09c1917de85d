"""The same report from each process, whatever order its sets have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.test_critical import train


@pytest.mark.slow
def test_an_audit_does_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    code = train(imports="import ffcv\nimport tensorflow_datasets\nimport webdataset\n")
    loader = next(line for line in code.splitlines() if "DataLoader(" in line)
    code = code.replace(loader, f"{loader.partition('=')[0]}= webdataset.load(ffcv, tensorflow_datasets)")
    (tmp_path / "train.py").write_text(code)
    audit = [sys.executable, "-m", "ptopt", "audit", str(tmp_path), "--format", "json"]
    reports = {
        subprocess.run(
            audit, env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True
        ).stdout
        for seed in range(8)
    }
    assert len(reports) == 1 and b"the data comes from `ffcv`" in reports.pop()
