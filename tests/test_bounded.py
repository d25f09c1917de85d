"""Files made to keep the reviewer busy: each ends within seconds and a gigabyte, and what was cut is named."""

from __future__ import annotations

import json

import pytest

from ptopt import review
from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import FILE_WORK, review_change
from ptopt.source.work import WorkLimitError, current, limited
from tests.limits import run_limited

_REVIEW = """
import sys
from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

change = Change((whole_file({path!r}, sys.stdin.buffer.read()),), ())
print(review_change(change, config=Config(), facts=NO_FACTS).not_reviewed)
"""
_IN_PART = "reviewed in part: it takes more work than one file may"
_STEP = """\
import torch
import torchmetrics

def train(model, loader, opt, metric):
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        opt.step()
        print(loss.item())
"""
_ATTENTION = """\
        s = q @ k.transpose(-2, -1) / math.sqrt(64)
        p = torch.softmax(s, dim=-1)
        o = p @ v
"""
_LOADERS = "".join(f"l{i} = DataLoader(d)\nfor x in l{i}:\n    x.cuda()\n" for i in range(4_000))
_LOOPS = "".join("    " * (i + 1) + f"for i{i} in range(9):\n" for i in range(18))
_READS = "".join("    " * 19 + f"v{i} = model(x{i}).sum().item()\n" for i in range(3_000))


def _notebook(lines: list[str]) -> str:
    cell = {"cell_type": "code", "source": lines, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


HOSTILE = {
    "attention in one function": (
        f"import torch, math\nclass A(torch.nn.Module):\n    def forward(self, q, k, v):\n{_ATTENTION * 600}",
        _IN_PART,
    ),
    "many loaders": (f"import torch\nfrom torch.utils.data import DataLoader\n{_LOADERS}", _IN_PART),
    "many reads in a step": (_STEP + "".join(f"        a{i} = loss.item()\n" for i in range(15_000)), ""),
    "many metrics in a step": (_STEP + "".join(f"        a{i} = metric(x, y)\n" for i in range(9_000)), ""),
    "deep loops": (f"import torch\ndef f(model):\n{_LOOPS}{_READS}", ""),
    "a long list": (f"{_STEP}x = [\n{'a,a,a,a,a,' * 190_000}]", "taken for generated"),
    "a list of many lines": (_STEP + "x = [\n" + "a,a,a,a,a,\n" * 170_000 + "]", "taken for generated"),
    "nested parentheses": (f"{_STEP}x = {'(' * 40_000}{')' * 40_000}", "too many nested parentheses"),
    "magics in a notebook": (_notebook([*_STEP.splitlines(keepends=True), *["foo?\n"] * 60_000]), ""),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_review_ends_within_seconds_and_a_gigabyte(case: str) -> None:
    text, reason = HOSTILE[case]
    path = "train.ipynb" if text.startswith("{") else "train.py"
    assert reason in run_limited(_REVIEW.format(path=path), text.encode())


def test_the_files_after_the_work_of_a_change_is_spent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "CHANGE_WORK", 10)
    change = Change(tuple(whole_file(path, _STEP.encode()) for path in ("a.py", "b.py")), ())
    found = review_change(change, config=Config(), facts=NO_FACTS)
    assert [(note.path, note.reason.partition(":")[0]) for note in found.not_reviewed] == [
        ("a.py", "reviewed in part"),
        ("b.py", "not reviewed"),
    ]


def test_an_account_is_charged_and_closed() -> None:
    with limited(10) as work:
        current().charge(10)
        with pytest.raises(WorkLimitError):
            current().charge(1)
    assert work.spent == 11
    current().charge(FILE_WORK)  # outside of the block there is no limit
