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
    assert b"the data comes from `ffcv`" in the_report(tmp_path)


@pytest.mark.slow
def test_the_code_in_tables_is_followed_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ("ALPHA", "BETA", "DELTA", "EPSILON", "GAMMA")
    calls = f"for table in ({', '.join(names)}): table['x'](tokenizer, images)"
    code = train(imports=f"from tables import {', '.join(names)}\n", before=calls)
    (tmp_path / "train.py").write_text(code)
    functions = [
        f"def of_{name}(tokenizer, x):\n    return tokenizer(x, padding='max_length', max_length=8)\n"
        f"{name} = {{'x': of_{name}}}\n"
        for name in names
    ]
    (tmp_path / "tables.py").write_text("\n".join(functions))
    assert b"sequences are padded to the maximum length" in the_report(tmp_path)


def the_report(folder: Path) -> bytes:
    audit = [sys.executable, "-m", "ptopt", "audit", str(folder), "--format", "json"]
    reports = {
        subprocess.run(
            audit, env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True
        ).stdout
        for seed in range(8)
    }
    (report,) = reports
    return report
