"""The benchmark commands run from start to end on small input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_static_prints_a_ratio_and_cold_starts() -> None:
    out = _run("benchmarks.static", ROOT / "ptopt" / "source", "--rounds", 1)
    assert "ratio " in out and "ptopt --version" in out and "peak MB" in out


@pytest.mark.model
@pytest.mark.slow
def test_impact_measures_one_rule() -> None:
    out = _run("benchmarks.impact", "--rule", "repeat-for-broadcast")
    assert "repeat-for-broadcast" in out and "x   " in out


def test_quality_scores_a_folder_of_cases(tmp_path: Path) -> None:
    head = (
        "import torch\n\n\ndef train(model, loader, optimizer, device):\n    total = 0.0\n    for x in loader:\n"
        "        loss = model(x.to(device)).loss\n        loss.backward()\n        optimizer.step()\n"
        "        total += loss.item()\n    return total\n"
    )
    labels = []
    for name, label, text in (("p1", "problem", head), ("n1", "clean", head.replace("loss.item()", "1.0"))):
        case = tmp_path / "cases" / name
        (case / "tree").mkdir(parents=True)
        (case / "tree" / "train.py").write_text(text)
        added = "".join(f"+{line}\n" for line in text.splitlines())
        (case / "change.diff").write_text(
            f"--- /dev/null\n+++ b/train.py\n@@ -0,0 +1,{len(text.splitlines())} @@\n{added}"
        )
        place = {"path": "train.py", "start": 10, "end": 10}
        labels.append(
            {"name": name, "label": label, "category": "host-device-sync", "difficulty": "easy"} | place
        )
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(label) + "\n" for label in labels))
    out = _run("benchmarks.quality", tmp_path, "-v")
    assert "problems found          1/1 100.0% [20.7%, 100.0%]" in out
    assert "clean commits commented 0/1 0.0% [0.0%, 79.3%]" in out
