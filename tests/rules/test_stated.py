"""What a rule says of its own confidence is true: a review skips it where it cannot state what a comment needs."""

from __future__ import annotations

import ast
import inspect
import sys

import pytest

from ptopt.ranker.model import shipped_ranker
from ptopt.rules import rules
from ptopt.rules.base import SURE, Rule
from ptopt.rules.engine import Hit, Prefilter, run, states, that_may_be_sure
from ptopt.rules.examples import as_change, as_file
from ptopt.source.file import SourceFile

EVERY = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
LEAST = shipped_ranker().least_stated


def _hits(rule: Rule) -> list[tuple[SourceFile, list[Hit]]]:
    found = []
    for case in (*rule.VALID, *(invalid.code for invalid in rule.INVALID)):
        text = as_file(case)
        file = SourceFile.parse("example.py", text.encode(), rule.PROJECT)
        found.append((file, run(file, [rule], change=as_change("example.py", text))))
    return found


def test_comments_need_more_than_sure_triggers_speak_of() -> None:
    assert LEAST > SURE


@EVERY
def test_no_problem_states_more_than_the_rule_says(rule: Rule) -> None:
    stated = [hit.problem.confidence for _, hits in _hits(rule) for hit in hits]
    assert max(stated, default=0.0) <= rule.most_stated


@pytest.mark.parametrize("rule", [r for r in rules() if r.most_stated < 1], ids=lambda rule: rule.name)
def test_no_number_in_a_rule_that_never_states_much_is_higher(rule: Rule) -> None:
    """Also one that no example leads to."""
    tree = ast.parse(inspect.getsource(sys.modules[type(rule).__module__]))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    numbers = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    assert max(number for number in numbers if number <= 1) < LEAST
    assert not names & {"TEXTBOOK"}


@pytest.mark.parametrize("rule", [r for r in rules() if states(r, LEAST)], ids=lambda rule: rule.name)
def test_a_rule_is_run_wherever_it_is_sure(rule: Rule) -> None:
    for file, hits in _hits(rule):
        if any(hit.problem.confidence > SURE for hit in hits):
            assert Prefilter([rule], LEAST)(file.data) == [rule]
            assert that_may_be_sure([rule], file) == [rule]
        else:
            that_may_be_sure([rule], file)  # raises where the answer fails


def test_rules_are_left_out_by_what_they_state() -> None:
    asked = next(rule for rule in rules() if not states(rule, LEAST))
    code = as_file(asked.INVALID[0].code).encode()
    assert Prefilter([asked])(code) == [asked]
    assert Prefilter([asked], LEAST)(code) == []
    assert Prefilter([asked], LEAST, [asked.id])(code) == [asked]


def test_words_for_sure_statements_are_asked_for_only_then() -> None:
    rule = next(r for r in rules() if r.id == "PTO101")
    code = b"import torch\n\ndef mean(x):\n    return x.mean().item()\n"
    assert Prefilter([rule])(code) == [rule]
    assert Prefilter([rule], LEAST)(code) == []
    assert Prefilter([rule], LEAST)(code + b"loss.backward()\n") == [rule]
