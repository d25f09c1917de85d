"""What a model says by itself is shown only where enough of it was right, on two splits."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.region import regions_of
from ptopt.source.file import SourceFile
from training.evaluation.study import TUNED, Study
from training.evaluation.synthetic import AdviceCounts, OwnFinding, is_supported
from training.evaluation.thresholds import LEAST, at_least, fit_threshold, with_own_words

pytestmark = pytest.mark.model


def found(right: list[tuple[float, bool]], explained: int = 0, supported: int = 0) -> AdviceCounts:
    own = [OwnFinding("item-every-step", log_odds, good) for log_odds, good in right]
    return AdviceCounts(own=own, explained=explained, supported=supported)


def study(held: AdviceCounts, test: AdviceCounts) -> Study:
    return Study(advised={TUNED: test}, advised_held_out=held)


def test_a_share_is_believed_of_enough_cases_only() -> None:
    assert at_least(LEAST - 1, LEAST - 1) == 0.0
    assert 0.85 < at_least(LEAST, LEAST) < at_least(200, 200) < 1
    assert at_least(80, 100) < 0.8


def test_the_threshold_is_the_lowest_that_is_precise() -> None:
    sure = [(0.9 + n / 1000, True) for n in range(60)]
    doubtful = [(0.5 + n / 1000, n % 2 == 0) for n in range(60)]
    scores, right = zip(*sure, *doubtful, strict=True)
    threshold = fit_threshold(scores, right)
    assert threshold is not None and 0.5 < threshold < 0.9
    assert fit_threshold(scores, [False] * len(right)) is None
    assert fit_threshold([], []) is None
    assert fit_threshold([0.7] * 100, [True] * 50 + [False] * 50) is None  # equal scores are shown together


def test_findings_and_sentences_are_enabled_where_both_splits_agree() -> None:
    good, bad = [(3.0, True)] * 40, [(3.0, n % 2 == 0) for n in range(40)]
    fitted, said = with_own_words(Calibration(), study(found(good, 50, 50), found(good, 50, 50)))
    assert fitted.advise_threshold == pytest.approx(0.9526, abs=1e-4) and fitted.explain
    assert "40 of 40 of the test split are right" in said
    fitted, said = with_own_words(Calibration(), study(found(good, 50, 50), found(bad, 50, 30)))
    assert fitted.silent and "not shown: from 0.95, 20 of 40" in said
    fitted, said = with_own_words(Calibration(), study(found(bad, 50, 30), found(good, 50, 50)))
    assert fitted.silent and "no threshold reaches" in said
    judged = Calibration(judge=JudgeFit(0.0, 1.0, 0.5))  # the threshold is on what a review computes
    fitted, _ = with_own_words(judged, study(found(good), found(good)))
    assert fitted.advise_threshold == judged.own_confidence("item-every-step", 3.0)
    assert with_own_words(judged, Study()) == (judged, "")


CODE = "import torch\n\n\ndef train(model, loader):\n    for x in loader:\n        total += model(x).item()\n"
(REGION,) = (r for r in regions_of(SourceFile.parse("a.py", CODE.encode()), None, []) if r.symbol)


@pytest.mark.parametrize(
    ("text", "supported"),
    [
        ("`model(x).item()` waits on line 3. Write `total += model(x).detach()` in place of line 3.", True),
        ("It is slow.", False),  # of no code in particular
        ("`loss.item()` waits on line 3.", False),
        ("`model(x).item()` waits on line 9.", False),
        ("`model(x).item()` waits. Delete line 3.", False),
        ("", False),
    ],
)
def test_a_sentence_speaks_of_the_code_that_is_there(text: str, supported: bool) -> None:
    known = "`.item()` waits on each step\n        total += model(x).detach()"
    assert is_supported(text, REGION, "item-every-step", known) is supported
