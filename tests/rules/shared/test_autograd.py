"""Whether autograd is off where the calls of a function stand."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.shared.autograd import run_with_autograd_off
from ptopt.source.context import Context
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository


def test_methods_that_all_lead_to_each_other_are_each_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"method_{n}" for n in range(6)]
    calls = "".join(f"        self.task.{name}()\n" for name in names)
    code = ("class Runner:\n" + "".join(f"    def {name}(self):\n{calls}\n" for name in names)).encode()
    around = Repository({f"{name}.py": code for name in "abc"})
    file = SourceFile.parse("task.py", code, repository=around)
    asked: list[ast.AST] = []
    real = Context.grad_off

    def counted(self: Context, node: ast.AST) -> bool:
        asked.append(node)
        return real(self, node)

    monkeypatch.setattr(Context, "grad_off", counted)
    assert not run_with_autograd_off(file.calls.functions[0], file)
    assert len(asked) <= 12 * 4 * len(names), "each method of the four files once, by at most twelve calls"


def test_callers_of_callers_are_asked() -> None:
    code = b"""
import torch

def score(model, x):
    return model(x)

def epoch(model, loader):
    return [score(model, x) for x in loader]

@torch.no_grad()
def main(model, loader):
    return epoch(model, loader)
"""
    file = SourceFile.parse("f.py", code)
    assert run_with_autograd_off(file.calls.functions[0], file)
    on = SourceFile.parse("f.py", code.replace(b"@torch.no_grad()\n", b""))
    assert not run_with_autograd_off(on.calls.functions[0], on)
