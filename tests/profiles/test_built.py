"""The advice of a profile names the line where the code builds what it is about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptopt.profiles.built import Built
from ptopt.profiles.verdict import verdict
from ptopt.source.built import built
from tests.cli.command import run, unwrapped
from tests.profiles.traces import CODE, DATA, event, profile

OPTIM = """\
import torch
from torch.optim import AdamW


def make(model, how):
    first = AdamW(model.parameters(), lr=1e-3)
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    done = AdamW(model.parameters(), fused=True)
    perhaps = AdamW(model.parameters(), **how)
    none = torch.optim.Rprop(model.parameters())
    return first, second, done, perhaps, none
"""


def test_optimizers_that_could_be_fused_and_loaders() -> None:
    line = (
        CODE.split("\n").index(
            '    loader = DataLoader(Slow(0.003 if kind == "data" else 0.0), batch_size=4)'
        )
        + 1
    )
    found = built({"optim.py": OPTIM, "train.py": CODE, "broken.py": "import torch.optim ("})
    assert found.loaders == (f"train.py:{line}",)
    assert found.optimizers == ("optim.py:6", "optim.py:7", f"train.py:{line - 1}")


def test_files_that_the_trace_names_come_before_others() -> None:
    files = {"optim.py": OPTIM, "train.py": CODE}
    assert built(files, {"optim.py"}).optimizers == ("optim.py:6", "optim.py:7")
    assert built(files, {"other.py"}) == built(files)


STEP = event("user_annotation", "ProfilerStep#1", 0, 100)


def test_the_change_names_the_optimizers() -> None:
    found = profile(
        STEP,
        event("user_annotation", "Optimizer.step#AdamW.step", 0, 60),
        event("cpu_op", "aten::_foreach_mul_", 0, 60),
        event("cpu_op", "aten::add", 60, 40),
    )
    assert verdict(found).kind == "memory"
    (fused,) = [c for c in verdict(found, Built(("a.py:3",))).changes if "fused=True" in c]
    assert fused.startswith("a fused optimizer (`fused=True` at a.py:3): updates of weights take")
    many = Built(tuple(f"a.py:{n}" for n in range(5)))
    assert "at a.py:0, a.py:1, a.py:2 and 2 more)" in " ".join(verdict(found, many).changes)


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_the_command_names_the_loader_of_the_run(tmp_path: Path, form: str) -> None:
    (tmp_path / "train.py").write_text(CODE)
    result = run("profile", DATA / "data.json.gz", "--code", tmp_path, "--format", form)
    text = (
        json.loads(result.stdout)["traces"][0]["verdict"]["changes"][0]
        if form == "json"
        else unwrapped(result)
    )
    line = (
        CODE.split("\n").index(
            '    loader = DataLoader(Slow(0.003 if kind == "data" else 0.0), batch_size=4)'
        )
        + 1
    )
    assert f"of the DataLoader at train.py:{line}, so that" in text.replace("\\", "").replace(
        "\u200b", ""
    ).replace("&#8203;", "")
