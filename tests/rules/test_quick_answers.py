"""Quick answers that spare a rule its work say no only where the long way would find nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from types import NoneType

import pytest

from ptopt.ranker.model import shipped_ranker
from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.engine import run
from ptopt.rules.examples import as_file
from ptopt.rules.shared import evaluation
from ptopt.rules.shared.places import every_step, may_hold_a_step
from ptopt.rules.sync import tensor_as_python_number
from ptopt.rules.sync.tensor_asked_first import flag_first, has_flag
from ptopt.source.file import SourceFile


@cache
def _examples() -> tuple[tuple[str, Rule], ...]:
    return tuple(
        (as_file(code), rule)
        for rule in rules()
        for code in (*rule.VALID, *(invalid.code for invalid in rule.INVALID))
    )


def _files() -> Iterator[SourceFile]:
    for text, rule in _examples():
        yield SourceFile.parse("example.py", text.encode(), rule.PROJECT)


def test_no_step_stands_in_a_file_that_holds_none() -> None:
    without = 0
    for file in _files():
        if not may_hold_a_step(file):
            without += 1
            assert not any(
                every_step(node, file) for node in file.index.of_type(ast.Call, ast.If, ast.Assign)
            )
    assert without > 100


def test_an_element_that_bounds_a_slice_is_always_among_the_counted_ones() -> None:
    rule = next(r for r in rules() if r.id == "PTO131")
    found = 0
    for file in _files():
        bounds = [
            bound
            for part in file.index.of_type(ast.Slice)
            if file.index.class_of(part) is not None
            for bound in (part.lower, part.upper)
            if not isinstance(bound, (ast.Constant, NoneType))
        ]
        elements = [tensor_as_python_number._element_of(b, file, known=False) for b in bounds]
        assert rule.may_be_sure(file) is any(element is not None for element in elements)
        found += rule.may_be_sure(file)
    assert found


@pytest.mark.parametrize(
    "code",
    [
        "class N:\n def f(self, x, n):\n  for i in x:\n   a = n[i]\n   def g():\n    return x[:a]\n",
        "class N:\n def f(self, x, n):\n  return [x[: n[i] + 1] for i in x]\n",
        "class N:\n def f(self, x, n):\n  for i, (j, _) in x:\n   a = (n\n    [\\\n    j, # !\n    ]).sum()\n   b = a\n   y = x[b:]\n",
        "class N:\n def f(self, x, n):\n  for i in x:\n   y = x[n[i:i + 2].sum() :]\n",
    ],
)
def test_an_element_is_seen_through_names_and_functions(code: str) -> None:
    rule = next(r for r in rules() if r.id == "PTO131")
    assert rule.may_be_sure(SourceFile.parse("a.py", code.encode()))


def test_a_condition_without_a_flag_has_none_behind_a_tensor() -> None:
    flagged = 0
    for file in _files():
        for test in file.index.of_type(ast.BoolOp):
            tensor = file.waits.branch_tensor(test)
            if tensor is not None and flag_first(test, tensor, file) is not None:
                flagged += 1
                assert has_flag(test, file)
    assert flagged


def test_no_evaluation_is_lost_by_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[object]:
        answers: list[object] = []
        for file in _files():
            for function in (None, *file.calls.functions):
                seen = evaluation.evaluation_of(function, file)
                answers.append(seen and (seen.case.why, seen.case.confidence, seen.first[0].lineno))
        return answers

    quick = found()
    monkeypatch.setattr(evaluation, "worth_a_look", lambda function, file: True)
    assert quick == found()
    assert any(quick)


def test_rules_of_training_steps_are_sure_in_them_alone() -> None:
    least = shipped_ranker().least_stated
    gated = [r for r in rules() if r.id in ("PTO101", "PTO102", "PTO103", "PTO104")]
    for file in _files():
        if not may_hold_a_step(file):
            stated = [hit.problem.confidence for hit in run(file, gated)]
            assert max(stated, default=0.0) <= SURE < least
