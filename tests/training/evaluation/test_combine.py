"""Rankings of rules and judge together, what a fit makes of a judge, and when the judge stays off."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

import numpy as np

from ptopt.findings import Finding, Severity, Span
from ptopt.model.calibration import Calibration, JudgeFit
from training.evaluation.calibrate import across_repositories, fit_on_cases, fit_on_held_out, write
from training.evaluation.cases import Pool, Remark
from training.evaluation.combine import Operating, confidences, gain, helps, operating, ranking, ranks
from training.evaluation.metrics import Interval
from training.evaluation.study import _across

pytestmark = pytest.mark.model

BY_JUDGE = Calibration(JudgeFit(intercept=0.0, of_confidence=0.0, of_log_odds=1.0))


def _remark(number: int, truth: bool | None, confidence: float, *, allowed: bool = True) -> Remark:
    finding = Finding(
        rule="PTO101", name="item-every-step", family="sync", severity=Severity.HIGH, path="a.py", span=Span(1, 1),
        symbol="", message="", when_wrong="", confidence=confidence, fingerprint=str(number),
    )  # fmt: skip
    label = "clean" if truth is False else "problem"
    return Remark(f"c{number}", f"r{number // 2 % 10}", label, finding, allowed, truth, None)


def _pool(seed: int = 0, size: int = 120) -> Pool:
    """Half of what the rules show is wrong, and their confidence does not tell which."""
    draw = random.Random(seed)
    remarks = tuple(_remark(n, n % 2 == 0, draw.choice([0.65, 0.7, 0.85])) for n in range(size))
    return Pool(remarks, (), size // 2, {"problem": size // 2, "clean": size // 2})


def _own(pool: Pool) -> list[float]:
    return [r.finding.confidence for r in pool.remarks]


def _with(pool: Pool, said: list[float | None], calibration: Calibration = BY_JUDGE) -> list[float]:
    return confidences(pool.remarks, said, calibration)


def test_a_judge_that_knows_helps() -> None:
    pool = _pool()
    together = _with(pool, [2.0 if r.truth else -2.0 for r in pool.remarks])
    plain = ranks(pool.remarks, _own(pool))
    gained = gain(pool, ranks(pool.remarks, together), plain, strict=True)
    assert gained.value == pytest.approx(0.5, abs=0.1) and gained.low > 0.3
    assert helps(gained, operating(pool, _own(pool)), operating(pool, together))


@pytest.mark.parametrize("seed", range(5))
def test_a_judge_that_guesses_does_not(seed: int) -> None:
    pool, draw = _pool(seed), random.Random(seed + 100)
    together = _with(pool, [draw.gauss(3, 1) for _ in pool.remarks])
    gained = gain(pool, ranks(pool.remarks, together), ranks(pool.remarks, _own(pool)), strict=True)
    before, after = operating(pool, _own(pool)), operating(pool, together)
    assert gained.low <= 0 and not helps(gained, before, after)


def test_what_nobody_knows_teaches_a_fit_nothing() -> None:
    """Scored on what is certain, fitted on it too: the judge is right there, and calls all the unknown right."""
    known = _pool().remarks
    unknown = [dataclasses.replace(_remark(n, None, 0.7), repository=f"r{n % 10}") for n in range(600)]
    pool = Pool((*known, *unknown), (), 60, {"problem": 60, "clean": 60})
    said: list[float | None] = [2.0 if r.truth else 4.0 if r.truth is None else -2.0 for r in pool.remarks]
    own = _own(pool)
    gained = _across(pool, said, own, ranks(pool.remarks, own), 50)
    assert gained.value > 0.3
    assert _across(pool, [None] * len(own), own, ranks(pool.remarks, own), 50).value == 0


def test_no_gain_is_no_help() -> None:
    found = Operating(5, 5, 0, found=5, wanted=5, clean_commented=0, clean=0)
    fewer = dataclasses.replace(found, found=4)
    sure = Interval(0.1, 0.05, 0.2, 10)
    assert helps(sure, found, found)
    assert not helps(sure, found, fewer)
    assert not helps(Interval(0.1, 0.0, 0.2, 10), found, found)
    assert not helps(Interval(0.1, math.nan, math.nan, 1), found, found)
    assert not helps(None, found, found)


def test_the_rules_ranking_is_that_of_a_review() -> None:
    high = _remark(0, True, 0.7)
    low = dataclasses.replace(high, finding=dataclasses.replace(high.finding, severity=Severity.LOW))
    assert ranks([high, low], [0.7, 0.9]).tolist() == pytest.approx([0.7, 0.63])


def test_where_the_judge_was_not_asked_the_rule_has_the_word() -> None:
    pool = Pool((_remark(0, True, 0.7), _remark(1, True, 0.7)), (), 2, {})
    assert _with(pool, [None, 0.0]) == pytest.approx([0.7, 0.5])


def test_unknown_is_wrong_or_left_out() -> None:
    remarks = (_remark(0, True, 0.7), _remark(1, None, 0.9), _remark(2, False, 0.6), _remark(3, True, 0.8))
    pool = Pool(remarks, (), 2, {})
    scores = ranks(remarks, _own(pool))
    assert ranking(pool, scores, None, strict=True, resamples=10).auc.value == pytest.approx(0.5)
    assert ranking(pool, scores, None, strict=False, resamples=10).auc.value == 1.0


def test_the_default_settings_show_what_is_allowed_and_sure_enough() -> None:
    remarks = (
        _remark(0, True, 0.9), _remark(1, True, 0.5), _remark(2, True, 0.9, allowed=False), _remark(3, False, 0.7),
        _remark(4, None, 0.7),
    )  # fmt: skip
    pool = Pool(remarks, (), 3, {"clean": 1})
    assert operating(pool, _own(pool)) == Operating(3, 1, 1, found=1, wanted=3, clean_commented=1, clean=1)


def test_the_held_out_fit_adds_evidence_to_the_rule() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(4000) < 0.2
    log_odds = np.where(truth, rng.normal(2, 1, 4000), rng.normal(-2, 1, 4000))
    fit = fit_on_held_out(truth, log_odds)
    assert fit is not None
    # Two normal distributions of width 1, four apart: the log of their ratio is 4 x, and 0 in the middle.
    assert fit.of_confidence == 1.0
    assert fit.of_log_odds == pytest.approx(4, rel=0.15) and abs(fit.intercept) < 0.4
    assert Calibration(fit).confidence("r", 0.7, -fit.intercept / fit.of_log_odds) == pytest.approx(0.7)


def test_a_judge_that_says_the_opposite_gets_no_fit() -> None:
    assert fit_on_held_out([True, True, False, False], [-1, -2, 1, 2]) is None
    assert fit_on_held_out([True, True], [1, 2]) is None


def test_the_fit_on_cases_weighs_both() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random(600) < 0.5
    fit = fit_on_cases(truth, rng.uniform(0.4, 0.9, 600), truth * 2 - 1 + rng.normal(0, 1, 600))
    assert fit is not None and fit.of_log_odds > 1 and abs(fit.of_confidence) < 0.5
    assert fit_on_cases([True], [0.5], [1.0]) is None


def test_no_repository_is_scored_by_a_fit_that_saw_it() -> None:
    """In one repository the judge says the opposite; a fit that saw it would know."""
    truth = [n % 2 == 0 for n in range(40)]
    names = ["odd" if n < 20 else "plain" for n in range(40)]
    said = [(2.0 if t else -2.0) * (-1 if name == "odd" else 1) for t, name in zip(truth, names, strict=True)]
    there = across_repositories(truth, [0.7] * 40, said, names)
    assert all((p > 0.5) != t for p, t, name in zip(there, truth, names, strict=True) if name == "odd")
    assert np.isnan(across_repositories(truth, [0.7] * 40, said, ["one"] * 40)).all()


def test_the_decision_is_written_beside_the_adapter(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps({"name": "judge", "metrics": {"loss": 0.5}}))
    (tmp_path / "README.md").write_text("# judge\n\nTrained.\n")
    fit = JudgeFit(0.1, 1.0, 0.5)
    write(tmp_path, Calibration(fit, measured_on="here"), "It helps.", {"auc": 0.9})
    write(tmp_path, Calibration.off(), "It does not help.", {"auc": 0.8})
    assert Calibration.from_json((tmp_path / "calibration.json").read_text()) == Calibration.off()
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["metrics"] == {"loss": 0.5, "auc": 0.8} and card["calibration"] == "It does not help."
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("# judge\n\nTrained.\n") and readme.endswith("It does not help.\n")
    assert "It helps." not in readme
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "calibration.json", "card.json"]
