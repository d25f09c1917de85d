"""A miniature ablation and the demo, from start to end, with a random model of two layers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.model, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]


def _run(*arguments: object) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_two_variants_are_measured_on_the_same_rows(
    tmp_path: Path, tiny_config: Path, tiny_data: Path
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.training.results import Result

    _run("benchmarks.training", "--config", tiny_config, "--data", tiny_data, "--tokens", 1500, "--only", "naive",
         "--only", "recipe", "--write", tmp_path / "results")  # fmt: skip
    (file,) = (tmp_path / "results").glob("*.json")
    result = Result.from_json(file.read_text())
    assert [m.name for m in result.measured] == ["naive", "recipe", "recipe", "naive"]
    assert {m.tokens for m in result.measured} == {result.tokens}
    assert len({m.steps for m in result.measured}) == 1
    assert all(m.cpu_s > 0 and m.wall_s > 0 and m.peak_mb > 50 and 0 < m.loss < 20 for m in result.measured)
    assert str(tiny_data) not in result.command
    assert file.with_suffix(".svg").exists() and "| recipe" in file.with_suffix(".md").read_text()


def test_the_demo_fine_tunes_and_shows_both_models(
    tmp_path: Path, tiny_config: Path, tiny_data: Path
) -> None:
    arguments = ("training", "demo", "--data", tiny_data, "--config", tiny_config, "--runs", tmp_path / "demo",
                 "--functions", 2)  # fmt: skip
    out = _run(*arguments)
    assert "== resnet.py: train" in out and "project7" in out
    assert out.count("-- base model") == out.count("-- fine-tuned") == 4
    assert out.count("right ") + out.count("WRONG ") >= 2 * 14
    assert out.count("valid JSON:") + out.count("INVALID JSON:") == 8
    assert "Candidates answered right" in out and "CPU s." in out
    (adapter,) = (tmp_path / "demo").glob("*/adapter")
    assert str(adapter) in _run(*arguments, "--functions", 0)  # the second time it is there already
