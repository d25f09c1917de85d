"""Rules that never state what a comment needs run only where somebody asks for what they find."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from ptopt.change import whole_file
from ptopt.config import Config, load_config
from ptopt.findings import Review
from ptopt.inspection import least_looked_for
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import known_names
from ptopt.rules.base import SURE, Problem, SourceFile
from ptopt.rules.engine import Prefilter, that_may_be_sure
from ptopt.rules.examples import as_file
from ptopt.rules.memory.norm_by_hand import NormByHand
from ptopt.rules.ops.result_used_in_one_branch import ResultUsedInOneBranch

CODE = """\
from torch import nn
import torch


class RMSNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
"""


def _check(code: str, config: Config) -> Review:
    file = whole_file("norm.py", code.encode())
    return review_files([file], config=config, facts=NO_FACTS, limit_to_change=False)


def _settings(text: str) -> Config:
    return load_config({".ptopt.toml": text.encode()}, known_names())


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, learned_ranker: None) -> str:
    """The id of such a rule, which a review names where it was run."""

    def check(self: NormByHand, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        raise ZeroDivisionError

    monkeypatch.setattr(NormByHand, "check", check)
    return NormByHand.id


def _ran(rule: str, config: Config) -> bool:
    return any(f"{rule} crashed" in note.reason for note in _check(CODE, config).not_reviewed)


def test_a_crash_of_the_question_whether_it_may_be_sure_is_reported(
    monkeypatch: pytest.MonkeyPatch, learned_ranker: None
) -> None:
    """As one of the rule itself: once, and the other rules go on. Whoever asks for the rule does not meet the question."""

    def may_be_sure(self: ResultUsedInOneBranch, file: SourceFile) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(ResultUsedInOneBranch, "may_be_sure", may_be_sure)
    rule = ResultUsedInOneBranch()
    sure = next(
        each for each in rule.INVALID if rule in Prefilter([rule], SURE + 0.1)(as_file(each.code).encode())
    )
    code = f"{as_file(sure.code)}\n\ndef wait(loss):\n    return loss.item()\n"
    review = _check(code, Config())
    crash = f"{rule.id} crashed on it (ZeroDivisionError); please report this bug"
    assert [note.reason for note in review.not_reviewed] == [crash]
    assert review.files_reviewed == 1
    assert _check(code, _settings(f'select = ["{rule.name}"]')).not_reviewed == ()
    file = SourceFile.parse("norm.py", code.encode())
    with pytest.raises(ZeroDivisionError):
        that_may_be_sure([rule], file)


def test_by_default_it_is_not_run(failing: str) -> None:
    review = _check(CODE, Config())
    assert not _ran(failing, Config()) and review.files_reviewed == 1
    assert review.least_stated == 0.65


@pytest.mark.parametrize(
    "text",
    [
        "min-confidence = 0.0",
        "min-confidence = 0.5",
        'select = ["norm-by-hand"]',
        'extend-select = ["memory"]',
        'select = ["ALL"]',
    ],
)
def test_settings_ask_for_it(failing: str, text: str) -> None:
    assert _ran(failing, _settings(text))


def test_a_higher_threshold_does_not_ask_for_it(failing: str) -> None:
    assert not _ran(failing, _settings("min-confidence = 0.9"))


def test_whoever_names_it_asks_for_it(failing: str) -> None:
    assert _ran(failing, Config().asking_for([failing]))


def test_a_model_may_be_shown_what_rules_doubt(learned_ranker: None) -> None:
    assert (least_looked_for(Config(), False), least_looked_for(Config(), True)) == (0.65, 0.0)
    assert least_looked_for(Config().at_least(0.3), False) == 0.0


def test_a_comment_that_silences_it_is_in_use(learned_ranker: None) -> None:
    silenced = CODE.replace("self.weight", "self.weight  # ptopt: ignore[norm-by-hand]")
    assert _check(silenced, Config()).unused_suppressions == ()
    idle = CODE.replace("(self, x):", "(self, x):  # ptopt: ignore[norm-by-hand]")
    assert [u.line for u in _check(idle, Config()).unused_suppressions] == [6]
    assert _check(silenced, Config()).suppressed == ()  # without the comment it would not be shown either
