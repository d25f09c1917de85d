"""What rules say of libraries is asked of the libraries themselves."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks.versions import inside
from benchmarks.versions.__main__ import Environment, all_facts, applies, ask, broken, main
from benchmarks.versions.facts import Fact
from benchmarks.versions.names import _used
from ptopt.rules import config_rules, rules

LIBRARY = """
import dataclasses

@dataclasses.dataclass
class Arguments:
    workers: int = 4
    names: list = dataclasses.field(default_factory=list)

def loader(data, *, pin=False): ...
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alibrary.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("default('alibrary.Arguments', 'workers')", "4"),
        ("default('alibrary.Arguments', 'names')", "[]"),
        ("default('alibrary.Arguments', 'gone')", "'missing'"),
        ("default('alibrary.loader', 'pin')", "False"),
        ("exists('alibrary.loader')", "True"),
        ("exists('alibrary.gone')", "False"),
        ("takes('alibrary.loader', 'pin')", "True"),
        ("takes('alibrary.loader', 'gone')", "False"),
        ("takes('alibrary.gone', 'pin')", "None"),
        ("find('alibrary.gone')", "AttributeError: module 'alibrary' has no attribute 'gone'"),
    ],
)
def test_questions(question: str, expected: str) -> None:
    assert inside.answer(question) == expected


def test_a_library_that_is_not_installed_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "LIBRARIES", ("nowhere",))
    assert inside.answer("exists('nowhere.at.all')") is None


def environment(version: str, answer: str | None) -> Environment:
    return Environment({"torch": version}, {"q": answer})


FACT = Fact(("some-rule",), "torch", "it is so", "q")


def test_what_does_not_hold_is_named_with_the_rule() -> None:
    old, new = environment("1.13.1", "True"), environment("2.15.0", "False")
    assert broken([FACT], [old, new]) == [(new, "some-rule", FACT, "False")]
    assert broken([FACT], [old, environment("2.15.0", None)]) == []


def test_versions_that_the_rule_leaves_out_do_not_count() -> None:
    old, new = environment("1.13.1", "False"), environment("2.15.0+cu132", "True")
    assert broken([dataclasses.replace(FACT, since="2.0")], [old, new]) == []
    assert broken([dataclasses.replace(FACT, until="2.0")], [new, old]) != []
    fused = dataclasses.replace(FACT, rules=("optimizer-not-fused",))  # since torch 2.4
    assert not applies(fused, "optimizer-not-fused", old) and applies(fused, "optimizer-not-fused", new)


def test_a_setting_that_came_later_is_no_matter_but_one_that_went_is() -> None:
    fact = dataclasses.replace(FACT, given=True)
    old, new = environment("1.13.1", "False"), environment("2.15.0", "True")
    assert broken([fact], [old, new]) == []
    assert (
        broken([fact], [dataclasses.replace(old, answers={"q": "True"}), environment("2.15.0", "False")])
        != []
    )


def test_names_of_corrected_examples() -> None:
    code = "import torch.nn.functional as F\nfrom torch import nn\ny = F.gelu(x, approximate='tanh').contiguous()\n"
    questions = {question for question, _, _ in _used(code)}
    assert {
        "exists('torch.nn.functional.gelu')",
        "takes('torch.nn.functional.gelu', 'approximate')",
        "method('contiguous')",
    } <= questions


def test_each_fact_is_of_a_rule_and_each_rule_with_versions_has_one() -> None:
    facts = all_facts()
    named = {rule for fact in facts for rule in fact.rules} - {"audit"}
    known = {rule.name for rule in (*rules(), *config_rules())}
    assert named <= known
    assert {rule.name for rule in rules() if rule.since or rule.until} <= named
    assert {fact.library for fact in facts} <= set(inside.LIBRARIES)


def test_the_command_fails_where_advice_is_obsolete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.versions.__main__.all_facts", lambda: [FACT])
    monkeypatch.setattr(
        "benchmarks.versions.__main__.ask", lambda python, facts: environment(python, "False")
    )
    assert main(["2.15.0"]) == 1
    assert "some-rule: it is so; in torch 2.15.0 it is False" in capsys.readouterr().out


@pytest.mark.model
def test_what_is_installed_is_as_the_rules_say() -> None:
    facts = all_facts()
    here = ask(sys.executable, facts)
    assert here.versions["torch"]
    assert [(rule, fact.says, answer) for _, rule, fact, answer in broken(facts, [here])] == []
