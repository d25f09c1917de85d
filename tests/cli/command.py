"""The command under test, and the code that it is run on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from ptopt.cli import main

TRAIN = """\
import torch
from torch import nn


def train(model, loader, optimizer):
    model.cuda()
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
OPS = """\
import torch


def one(x):
    return torch.log(torch.softmax(x, dim=-1))


def two(x):
    return torch.log(torch.softmax(x, dim=1))
"""


def run(*args: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def command(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    full = [sys.executable, "-m", "ptopt.cli", *map(str, args)]
    return subprocess.run(full, capture_output=True, check=False, **options)


def unwrapped(result: Result) -> str:
    return " ".join(result.stdout.split())


def findings(result: Result) -> list[tuple[str, str, int]]:
    assert result.exit_code in (0, 1), result.output
    return [(f["rule"], f["path"], f["start_line"]) for f in json.loads(result.stdout)["findings"]]
