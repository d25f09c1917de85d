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
from ptopt.rules.ops._unread import _computes_nothing, are_read, unclear
from ptopt.rules.ops._wasted import what_matters
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
            if tensor_as_python_number._stands_in_module(part, file)
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
        "class N(nn.Module):\n def f(self, x, n):\n  for i in x:\n   a = n[i]\n   def g():\n    return x[:a]\n",
        "class N(nn.Module):\n def f(self, x, n):\n  return [x[: n[i] + 1] for i in x]\n",
        "class N(nn.Module):\n def f(self, x, n):\n  for i, (j, _) in x:\n   a = (n\n    [\\\n    j, # !\n    ]).sum()\n   b = a\n   y = x[b:]\n",
        "class N(nn.Module):\n def f(self, x, n):\n  for i in x:\n   y = x[n[i:i + 2].sum() :]\n",
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


def test_rules_are_sure_only_where_their_quick_answer_allows() -> None:
    least = shipped_ranker().least_stated
    gated = [r for r in rules() if type(r).may_be_sure is not Rule.may_be_sure]
    assert {"PTO101", "PTO131", "PTO203", "PTO501"} <= {r.id for r in gated}
    for file in _files():
        doubted = [rule for rule in gated if not rule.may_be_sure(file)]
        stated = [hit.problem.confidence for hit in run(file, doubted)]
        assert max(stated, default=0.0) <= SURE < least


def test_where_all_is_read_at_a_glance_nothing_is_unread() -> None:
    glances = 0
    for file in _files():
        for function in file.calls.functions:
            all_read = are_read(unclear(function, file).open, function, file)
            found = what_matters(function, file) if all_read else None
            if found is not None:
                glances += 1
                assert not any(
                    found.is_unread(statement) and not _computes_nothing(statement)
                    for statement in found.after
                    if isinstance(statement, (ast.Assign, ast.AnnAssign))
                )
    assert glances > 500


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("if a:\n  x = g(a)\n else:\n  x = h(x)\n return x", True),
        ("x = g(a)\n x = h(\n  x\n )\n return x", True),
        ("x = g(a)\n x += 1\n return x", True),
        ("x = g(a)\n if b:\n  x = h(b)\n return x", True),
        ("x = g(a)\n x = h(b)\n return x", False),
        ("if a:\n  x = g(a)\n else:\n  h(x)\n return b", False),
        ("if a:\n  x = g(a)\n  return b\n return x", False),
        ("while a:\n  x = g(a)\n  break\n  h(x)\n return b", False),
        ("if a:\n  x = g(a)\n  x = h(b)\n return x", False),
        ("if a:\n  if b:\n   x = g(a)\n  return b\n return x", False),
        ("x, y = g(a)\n y = h(b)\n return y", False),
    ],
)
def test_a_read_is_seen_at_a_glance_past_branches_and_what_binds_anew(code: str, read: bool) -> None:
    file = SourceFile.parse("a.py", f"def f(a, b, x):\n {code}\n".encode())
    function = file.calls.functions[0]
    assert are_read(unclear(function, file).open, function, file) is read
