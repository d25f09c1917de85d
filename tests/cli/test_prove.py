from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import run

CODE = """\
import torch


def logs(x: torch.Tensor):
    return torch.log(torch.softmax(x, dim=-1))


def items(x: torch.Tensor):
    return [v.item() for v in x]


def report(x: torch.Tensor):
    print("a report")
    return x.clone().mean(dim=1)


def columns(boxes: torch.Tensor):
    return boxes[:, [0, 1]]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "ops.py"
    file.write_text(CODE)
    return file


def _prove(file: Path, *options: str) -> str:
    return run("prove", file, "--min-confidence", "0", *options).stdout


@pytest.mark.parametrize("text", ["", '{"f": {"x": {"shape": [2], "code": "import os"}}}'])
def test_a_file_of_inputs_that_cannot_be_read_is_an_error(file: Path, text: str) -> None:
    given = file.with_name("inputs.json")
    given.write_text(text)
    result = run("prove", file, "--inputs", given)
    assert result.exit_code == 2
    assert result.stderr.startswith("ptopt: error: ") and "inputs.json" in result.stderr


def test_each_finding_says_why_its_fix_was_not_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptopt.prove import sandbox

    monkeypatch.setattr(sandbox, "missing", lambda: "torch is not installed")
    assert "not proved: there is no sandbox to run it in: torch is not installed" in " ".join(
        _prove(file).split()
    )
    data = json.loads(_prove(file, "--format", "json"))
    reasons = {f["symbol"]: f["proof"]["reason"] for f in data["findings"] if f["fix"] is not None}
    assert reasons == {
        "logs": "no-sandbox",
        "items": "no-sandbox",
        "report": "input-output",
        "columns": "no-sandbox",
    }


@pytest.mark.model
def test_fixes_are_proved_or_refused(file: Path) -> None:
    file.with_name("inputs.json").write_text(
        '{"logs": {"x": {"shape": ["n", "classes"]}}, "items": {"x": {"shape": ["n"]}}}'
    )
    given = ("--inputs", str(file.with_name("inputs.json")))
    data = json.loads(_prove(file, "--format", "json", *given))
    proofs = {f["symbol"]: f["proof"] for f in data["findings"] if f["fix"] is not None}

    # Some thirty times as fast, which no busy machine hides.
    assert proofs["items"]["proved"] and proofs["items"]["inputs"] >= 8 and proofs["items"]["low"] >= 1.02
    assert proofs["logs"]["reason"] == "different" and "apart" in proofs["logs"]["why"]
    assert proofs["report"]["reason"] == "input-output"
    assert proofs["columns"]["reason"] == "different" and "memory" in proofs["columns"]["why"]


def test_what_was_left_out_is_counted_as_check_counts(tmp_path: Path) -> None:
    """`prove` runs each place by itself; two of one cause are one finding for both commands."""
    (tmp_path / "train.py").write_text(
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        "        x = x.cuda()\n        y = y.cuda()\n        loss = model(x, y)\n        loss.backward()\n        optimizer.step()\n"
    )
    lines = [
        next(line for line in run(command, tmp_path).stdout.splitlines() if "shows all" in line)
        for command in ("check", "prove")
    ]
    assert lines[0] == lines[1]
    assert " at " in lines[0]
