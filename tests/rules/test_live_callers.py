"""The evidence of a training step names a call that runs by default, not one behind an option that is off."""

from __future__ import annotations

import pytest

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile

CODE = """\
import torch


class Trainer:
    def __init__(self, model, optimizer, half={half}):
        self.model, self.optimizer = model.cuda(), optimizer
        self.half = half
        self.weights = list(model.parameters())
        self.masters = self.weights

    def fit(self, loader):
        for batch in loader:
            self.model(batch).backward()
            self.optimize()

    def optimize(self):
        if self.half:
            return self.optimize_half()
        else:
            return self.optimize_full()

    def optimize_half(self):
        self.norm(2.0)
        self.optimizer.step()

    def optimize_full(self):
        self.norm(1.0)
        self.optimizer.step()

    def norm(self, scale):
        for p in self.masters:
            print(p.grad.norm().item() / scale)
"""


@pytest.mark.parametrize(
    ("half", "line", "text"), [("False", 27, "1.0"), ("True", 23, "2.0"), ("None", 27, "1.0")]
)
def test_the_call_named_is_live(half: str, line: int, text: str) -> None:
    rule = find_rule("PTO101")
    assert rule is not None
    (hit,) = run(SourceFile.parse("trainer.py", CODE.format(half=half).encode()), [rule()])
    (evidence,) = hit.problem.evidence
    assert (evidence.line, f"self.norm({text})" in evidence.note) == (line, True)
    assert f"(line {line})" in hit.problem.message
    assert "for each parameter" in hit.problem.message
