"""What a finding points at."""

from __future__ import annotations

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile

TRAINS_AND_EVALUATES = """\
import torch

def main(model, train_loader, val_loader, optimizer):
    for x, y in train_loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        print(loss.item())
    model.eval()
    for x, y in val_loader:
        print(model(x).argmax(1).sum().item())
"""


def test_evidence_of_an_evaluation_is_not_in_the_training() -> None:
    rule = find_rule("evaluation-records-graph")
    assert rule is not None
    (hit,) = run(SourceFile.parse("train.py", TRAINS_AND_EVALUATES.encode()), [rule()])
    assert {evidence.line for evidence in hit.problem.evidence} <= {9, 10, 11}
