"""`python -m benchmarks.gpu` without a GPU: which steps run, what stays, what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.waits_table import markdown


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two steps, of which the second fails; the names of those that ran."""
    ran: list[str] = []

    def good(run: gpu.Run) -> str:
        ran.append("good")
        return json.dumps({"printed": run.python("-c", "print(40 + 2)")})

    def bad(run: gpu.Run) -> str:
        ran.append("bad")
        return run.python("-c", "import sys; print('half'); sys.exit('no memory')")

    monkeypatch.setattr(gpu, "STEPS", {"good": good, "bad": bad})
    return ran


def _main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu", *arguments])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    return ended.value.code


def test_a_failed_step_leaves_the_others_and_is_tried_again(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, "--out", str(tmp_path)) == 1
    assert json.loads((tmp_path / "good.json").read_text("utf-8")) == {"printed": "42\n"}
    assert not (tmp_path / "bad.json").exists()
    assert "half" in (log := (tmp_path / "log.txt").read_text("utf-8")) and "no memory" in log
    assert "bad        failed" in capsys.readouterr().out
    assert _main(monkeypatch, "--out", str(tmp_path)) == 1
    assert steps == ["good", "bad", "bad"]


def test_without_time_nothing_begins(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _main(monkeypatch, "--out", str(tmp_path), "--minutes", "0.1") == 0
    assert steps == []


def test_a_step_that_runs_out_of_time_leaves_what_it_printed(tmp_path: Path) -> None:
    run = gpu.Run(tmp_path, tmp_path, tmp_path, True, time.monotonic() + 3)
    slow = "import time; print('begun', flush=True); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        run.python("-c", slow)
    assert "begun" in (tmp_path / "log.txt").read_text("utf-8").splitlines()


def test_the_table_begins_with_what_differs() -> None:
    rows = [
        {"code": "x.sum()", "given": "", "host_ms": 0.1, "waits": False},
        {"code": "x[i | 1]", "given": "", "host_ms": 25.0, "waits": True},
        {
            "code": "broken",
            "given": "",
            "host_ms": None,
            "waits": None,
            "error": "NameError: x",
        },
    ]
    lines = markdown(rows, "a GPU").splitlines()
    assert "1 waited" in lines[2] and "missed 1 waits" in lines[2]
    assert lines[6].startswith("| `x[i \\| 1]` | 25.00 | yes | **does not wait** |")
    assert lines[-1] == "- not measured: `broken`: NameError: x"
