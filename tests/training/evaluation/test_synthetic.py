"""Judges and advisers on held-out samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

import numpy as np

from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration
from ptopt.model.interface import ChatPrompt
from ptopt.model.region import Candidate, regions_of
from ptopt.source.file import SourceFile
from tests.model.scripted import Scripted
from tests.training.evaluation.conftest import CORRECTED, SLOW
from training.dataset.rows import Sample
from training.dataset.rule_examples import measured, pairs
from training.evaluation.baselines import Prior, TokenClassifier
from training.evaluation.judges import LabelledRegion, Targets, log_odds
from training.evaluation.metrics import auc
from training.evaluation.synthetic import advise, questions, select_samples

pytestmark = pytest.mark.model


def test_questions_are_those_of_the_samples(dataset: Path) -> None:
    answers = Targets.of(questions(select_samples(dataset, "test", None)))
    assert answers.truth.sum() == 6 and answers.truth.size == 18
    assert set(answers.projects) == {"test-0", "test-1", "test-2"}
    yes = {rule for rule, truth in zip(answers.rules, answers.truth, strict=True) if truth}
    assert yes == {"item-every-step"}


def test_a_limit_draws_the_same_samples_each_time(dataset: Path) -> None:
    few = select_samples(dataset, "test", 4)
    assert few == select_samples(dataset, "test", 4) and len(few) == 4
    assert all(sample in select_samples(dataset, "test", None) for sample in few)


def test_words_learn_what_knowing_the_rule_does_not_tell(dataset: Path) -> None:
    learned, test = (questions(select_samples(dataset, split, None)) for split in ("train", "test"))
    answers = Targets.of(test)
    about = np.array([rule == "item-every-step" for rule in answers.rules])
    words, prior = log_odds(TokenClassifier(learned), test), log_odds(Prior(learned), test)
    assert auc(answers.truth[about], words[about]) == 1.0
    assert auc(answers.truth[about], prior[about]) == 0.5


def test_words_read_as_many_lines_as_the_model_they_are_held_against() -> None:
    def labelled(number: int, tell: str) -> LabelledRegion:
        middle = "".join(f"    y = layer_{i}(y)\n" for i in range(60))
        text = f"import torch\n\n\ndef f_{number}(x, y):\n    {tell}\n{middle}    z = x.item()\n"
        source = SourceFile.parse("a.py", text.encode())
        (region,) = regions_of(source, None, [Candidate("item-every-step", (text.count("\n"),))])
        return LabelledRegion(region, {"item-every-step": tell == "x.slow()"}, f"p{number}")

    learned = [labelled(n, "x.slow()" if n % 2 else "x.fast()") for n in range(20)]
    truth = Targets.of(learned).truth
    assert auc(truth, log_odds(TokenClassifier(learned, tokens=2000), learned)) == 1.0
    few = log_odds(TokenClassifier(learned, tokens=60), [labelled(50, "x.slow()"), labelled(51, "x.fast()")])
    assert abs(few[0] - few[1]) < 1e-9


def test_a_baseline_that_saw_one_answer_only_says_it(dataset: Path) -> None:
    clean = [a for a in questions(select_samples(dataset, "train", None)) if not any(a.truth.values())]
    assert (log_odds(TokenClassifier(clean), clean) < 0).all()
    assert (log_odds(Prior(clean), clean) < 0).all()
    assert TokenClassifier(clean).judge([]) == []


def _advisor(findings: list[dict[str, object]] | str) -> Advisor:
    text = findings if isinstance(findings, str) else json.dumps({"findings": findings})

    def say(prompt: ChatPrompt) -> str:
        number = next((w for w in prompt.user.split() if w.startswith("total_")), "total")
        return text.replace("total", number)

    return Advisor(Scripted(say=say), Calibration.off())


def _finding(line: int, replacement: str) -> dict[str, object]:
    return {
        "rule": "item-every-step", "start_line": line, "end_line": line, "replacement": replacement, "reason": "slow",
    }  # fmt: skip


def test_good_advice_counts_in_full(dataset: Path) -> None:
    chosen = select_samples(dataset, "test", None)
    found = advise(_advisor([_finding(7, f"        {CORRECTED}")]), chosen)
    assert (found.answers, found.valid, found.said, found.wanted, found.right) == (12, 12, 12, 6, 6)
    assert found.clean == 6 and found.silent_where_clean == 0
    # On the others the line is guarded already, but the code that takes its place holds as well.
    assert found.holds >= 6 and found.resolved == found.holds and found.known_fix == 6
    assert found.by_rule == {"item-every-step": {"said": 12, "wanted": 6, "right": 6}}
    assert (found.executable, found.executed) == (0, 0)


@pytest.mark.parametrize(
    "replacement",
    ["        total +=", f"        {SLOW}", "    return 0", "        import os", "        total += nothing"],
)
def test_advice_that_does_not_hold_is_not_counted_as_held(dataset: Path, replacement: str) -> None:
    found = advise(
        _advisor([_finding(7, replacement)]),
        [s for s in select_samples(dataset, "test", None) if s.positives],
    )
    assert found.said == 6 and found.right == 6 and found.holds == 0


def test_advice_that_only_deletes_is_wrong(dataset: Path) -> None:
    chosen = [s for s in select_samples(dataset, "test", None) if s.positives]
    found = advise(_advisor([_finding(7, "")]), chosen)
    assert (found.said, found.deleting, found.right, found.holds) == (6, 6, 0, 0)
    assert found.own == []


def test_what_holds_is_judged_and_the_rest_is_not(dataset: Path) -> None:
    """For the thresholds: the log-odds that a review would have, and whether the finding is right."""
    found = advise(_advisor([_finding(7, f"        {CORRECTED}")]), select_samples(dataset, "test", None))
    assert len(found.own) == found.holds and sum(own.right for own in found.own) == 6
    assert {own.log_odds for own in found.own} == {0.0}
    assert found.explained == 6 and found.supported == 0  # it says JSON


def test_the_wrong_line_is_not_right(dataset: Path) -> None:
    found = advise(
        _advisor([_finding(1, "def train(model, loader, optimizer, device):")]),
        select_samples(dataset, "test", None),
    )
    assert found.right == 0 and found.said == 12


@pytest.mark.parametrize(
    ("text", "valid"), [('{"findings": []}', 12), ("Sure! Here is", 0), ('{"findings": [{}]}', 0)]
)
def test_silence_is_valid_and_prose_is_not(dataset: Path, text: str, valid: int) -> None:
    found = advise(_advisor(text), select_samples(dataset, "test", None))
    assert found.valid == valid and found.said == 0 and found.silent_where_clean == found.clean == 6


def test_text_that_is_no_code_is_passed_over(dataset: Path) -> None:
    broken = Sample(
        text="def train(:\n", context="", path="a.py", project="p", licence="MIT", source="packages", provenance="",
        kind="original", main_rule="cat-in-loop",
    )  # fmt: skip
    assert advise(_advisor([]), [broken]).answers == 0
    assert questions([broken]) == []


@pytest.mark.slow
def test_a_benchmark_of_ours_is_run_with_what_was_advised() -> None:
    from training.sandbox.execute import Outcome

    name = "repeat-for-broadcast"
    rule, pair = next((r, p) for r, p in pairs() if r.name == name)
    sample = measured(rule, pair, Outcome(True, True, 2.0, "a test"))
    assert sample is not None and sample.positives
    fix = sample.positives[0]
    if fix.replacement is None:
        pytest.skip("the rule knows no fix here")
    said = [{
        "rule": name, "start_line": fix.fix_start, "end_line": fix.fix_end, "replacement": fix.replacement, "reason": "",
    }]  # fmt: skip
    found = advise(
        Advisor(Scripted(say=lambda _: json.dumps({"findings": said})), Calibration.off()), [sample]
    )
    assert found.executable == 1 and found.executed == found.equal == 1
