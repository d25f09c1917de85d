"""PTO502 on a network that is a parameter: what its callers, in other files too, do with its weights decides."""

from __future__ import annotations

import pytest

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

STEP = """\
import torch
import torch.nn.functional as F


def distill(student, teacher, loader, optimizer):
    teacher.eval()
    student.train()
    for x in loader:
        target = teacher(x)
        loss = F.mse_loss(student(x), target)
        loss.backward()
        optimizer.step()
"""
CALLER = """\
import torch
from steps import distill


def run_all(large, small, loader):
    optimizer = torch.optim.Adam({optimised})
    distill(small, teacher=large, loader=loader, optimizer=optimizer)


def main(loader):
    big = {made}
    run_all(big, make("small"), loader)
"""
FREEZING = """\
def make_frozen_or_not(name):
    network = load(name)
    network.requires_grad_(False)
    return network
"""


def _confidences(**around: str) -> list[float]:
    """Of the finding in `distill`."""
    rule = find_rule("PTO502")
    assert rule is not None
    files = {f"{name}.py": text.encode() for name, text in around.items()}
    file = SourceFile.parse("steps.py", STEP.encode(), repository=Repository(files))
    return [hit.problem.confidence for hit in run(file, [rule()])]


def _caller(optimised: str = "small.parameters()", made: str = 'make("large")') -> str:
    return CALLER.format(optimised=optimised, made=made)


def test_callers_that_train_the_other_network_make_it_surer() -> None:
    assert _confidences() == [0.45]
    assert _confidences(train=_caller()) == [0.65]
    assert _confidences(train=_caller(made='AutoModel.from_pretrained("large")')) == [0.85]


@pytest.mark.parametrize(
    "caller",
    [
        _caller("[*small.parameters(), *large.parameters()]"),
        _caller(made='make("large").requires_grad_(False)'),
        _caller(made='load_frozen("large")'),
        _caller(made='make_frozen_or_not("large")'),
        _caller("weights"),
        _caller().replace("teacher=large, ", "**networks, "),
    ],
    ids=["optimised", "frozen", "frozen by name", "frozen by its maker", "unknown", "not seen"],
)
def test_a_network_that_may_be_trained_or_frozen_by_a_caller_is_left_alone(caller: str) -> None:
    assert _confidences(train=caller, models=FREEZING) == []


@pytest.mark.parametrize(
    "line",
    [
        "loss = F.mse_loss(student(x), teacher(x))",
        "loss = F.mse_loss(made, teacher(x))",
        "loss = F.mse_loss(student(x), teacher(x).detach())",
    ],
)
def test_no_fix_turns_autograd_off_for_the_loss(line: str) -> None:
    code = STEP.replace(
        "    target = teacher(x)\n        loss = F.mse_loss(student(x), target)", f"    {line}"
    )
    rule = find_rule("PTO502")
    assert rule is not None
    problems = [hit.problem for hit in run(SourceFile.parse("steps.py", code.encode()), [rule()])]
    assert problems and all(problem.fix is None for problem in problems)
