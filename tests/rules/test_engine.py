"""Pre-filter, version gates and order of the engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from ptopt.project.facts import NO_FACTS, ProjectFacts, read_facts
from ptopt.rules.base import Problem, Rule
from ptopt.rules.engine import Prefilter, applies, assumptions, run
from ptopt.source.file import SourceFile


class EveryName(Rule):
    """Reports each name, twice."""

    id = "T2"
    name = "name"
    family = "test"
    triggers = ("alpha", "beta")
    requires = ("gamma",)
    nodes = (ast.Name,)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        yield Problem(node, "second", 0.9)
        yield Problem(node, "first", 0.9)


def _facts(requirement: str) -> ProjectFacts:
    return read_facts({"requirements.txt": requirement.encode()})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import torch; alpha; gamma", True),
        ("import torch; beta; gamma", True),
        ("import torch; alpha", False),
        ("import torch; gamma", False),
        ("alpha; gamma", False),
        ("from lightning import alpha, gamma", True),
    ],
)
def test_prefilter_wants_a_library_a_trigger_and_a_requirement(text: str, wanted: bool) -> None:
    assert bool(Prefilter([EveryName()])(text.encode())) is wanted


@pytest.mark.parametrize(
    ("since", "until", "requirement", "expected"),
    [
        ({}, {}, "torch==1.9", True),
        ({"torch": "2.0"}, {}, "torch>=2.1", True),
        ({"torch": "2.0"}, {}, "torch>=1.9", False),
        ({"torch": "2.0"}, {}, "", True),
        ({}, {"torch": "2.0"}, "torch==1.9", True),
        ({}, {"torch": "2.0"}, "torch>=2.1", False),
        ({}, {"torch": "2.0"}, "", False),
        ({"torch": "2.0", "transformers": "4.50"}, {}, "torch>=2.1\ntransformers==4.40", False),
    ],
)
def test_version_gates(
    since: dict[str, str], until: dict[str, str], requirement: str, expected: bool
) -> None:
    rule = type("Gated", (EveryName,), {"since": since, "until": until})()
    assert applies(rule, _facts(requirement)) is expected


@pytest.mark.parametrize(
    ("since", "requirement", "expected"),
    [
        ({"torch": "2.5"}, "", "torch >= 2.5"),
        ({"torch": "2.5"}, "torch==2.6", ""),
        ({"torch": "2.0"}, "", ""),  # older than what all advice may take for granted
        ({"torch": "2.5", "datasets": "3.0"}, "", "datasets >= 3.0 and torch >= 2.5"),
    ],
)
def test_what_is_assumed_is_said(since: dict[str, str], requirement: str, expected: str) -> None:
    rule = type("Gated", (EveryName,), {"since": since})()
    assert assumptions(rule, _facts(requirement) if requirement else NO_FACTS) == expected


def test_hits_come_in_source_order() -> None:
    file = SourceFile.parse("f.py", b"b(a)\nc\n")
    names = [hit.problem.node.id for hit in run(file, [EveryName()])]  # type: ignore[attr-defined]
    assert names == ["b", "b", "a", "a", "c", "c"]


def test_gated_rules_do_not_run() -> None:
    rule = type("Gated", (EveryName,), {"since": {"torch": "2.0"}})()
    file = SourceFile.parse("f.py", b"a\n", _facts("torch==1.13"))
    assert run(file, [rule]) == []


def test_a_rule_that_raises_does_not_stop_the_others() -> None:
    class Broken(EveryName):
        def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
            raise KeyError("oops")

    file = SourceFile.parse("f.py", b"a\n")
    failed: list[tuple[Rule, Exception]] = []
    hits = run(file, [Broken(), EveryName()], failed)
    assert len(hits) == 2 and [repr(error) for _, error in failed] == ["KeyError('oops')"]
    with pytest.raises(KeyError):
        run(file, [Broken()])
