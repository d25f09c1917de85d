"""Fixes that add an argument to the call of a method: a class of the repository may have a method that does not take it."""

from __future__ import annotations

import pytest

from ptopt.project.facts import Pin, ProjectFacts
from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

OLD = ProjectFacts({"torch": (Pin("torch", "<2.0", False, "setup.py", 9),)})
LOOP = """\
import torch
from lib.half import {imported}


class Loop:
    def __init__(self, model, inner):
        self.trainer = {made}

    def step(self):
        self.trainer.zero_grad()
"""
WRAPPER = """\
class Trainer:
    def __init__(self, model):
        self.model = model

    def zero_grad({parameters}):
        for p in self.model.parameters():
            p.grad = None
"""


def _found(made: str, parameters: str = "self", imported: str = "Trainer") -> int:
    rule = find_rule("PTO731")
    assert rule is not None
    around = Repository({"lib/half.py": WRAPPER.format(parameters=parameters).encode()})
    text = LOOP.format(made=made, imported=imported).encode()
    return len(run(SourceFile.parse("loop.py", text, OLD, around), [rule()]))


@pytest.mark.parametrize(
    ("made", "parameters", "expected"),
    [
        ("Trainer(model)", "self", 0),
        ("inner", "self", 0),  # may be one
        ("Trainer(model)", "self, set_to_none=False", 1),
        ("inner", "self, **options", 1),
        ("torch.optim.SGD(model.parameters(), 0.1)", "self", 1),
    ],
)
def test_zero_grad_gets_an_argument_that_it_takes(made: str, parameters: str, expected: int) -> None:
    assert _found(made, parameters) == expected


def test_a_class_that_inherits_from_torch_takes_what_torch_takes() -> None:
    rule = find_rule("PTO731")
    assert rule is not None
    text = b"""\
import torch


class Own(torch.optim.SGD):
    pass


def step(parameters):
    optimizer = Own(parameters, 0.1)
    optimizer.zero_grad()
"""
    around = Repository({"lib/half.py": WRAPPER.format(parameters="self").encode()})
    assert len(run(SourceFile.parse("loop.py", text, OLD, around), [rule()])) == 1
