"""The ranker learns what the verdicts have in common, and nothing from the names of repositories."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ptopt.ranker.model import Head, read
from training.ranker.cli import ranker
from training.ranker.fit import PRECISION, Columns, _boosted, _tree, threshold, train
from training.ranker.rows import Row, by_repository
from training.ranker.rows import read as read_rows


def rows(number: int, seed: int, repositories: str) -> list[Row]:
    """Comments that are useful when they run often, wrong when the value is unknown; the rest is noise."""
    chance = random.Random(seed)
    found = []
    for index in range(number):
        often, unknown, noise = chance.random() < 0.5, chance.random() < 0.2, chance.random()
        verdict = (
            "W" if unknown and chance.random() < 0.8 else "R" if often and chance.random() < 0.9 else "T"
        )
        known = {"often:step": float(often), "value:unknown": float(unknown), "noise": noise}
        found.append(Row(f"{repositories}/{index % 11}", "some-rule", verdict, known, ""))
    return found


@pytest.mark.slow
def test_what_decides_is_found() -> None:
    fitted = train(rows(400, 1, "a"), rows(200, 2, "b"))
    yes = fitted.weigh({"often:step": 1.0, "noise": 0.5})
    no = fitted.weigh({"noise": 0.5})
    assert yes.useful > 0.7 > 0.3 > no.useful
    assert fitted.weigh({"value:unknown": 1.0}).right < 0.5 < yes.right
    assert abs(fitted.useful.weights.get("noise", 0.0)) < abs(fitted.useful.weights["often:step"]) / 2


@pytest.mark.slow
def test_predictions_on_unseen_repositories_are_calibrated() -> None:
    fitted = train(rows(600, 3, "a"), rows(200, 4, "b"))
    fresh = rows(1000, 5, "c")
    stated = sum(fitted.useful.probability(row.features) for row in fresh) / len(fresh)
    assert abs(stated - sum(row.useful for row in fresh) / len(fresh)) < 0.05


def test_a_repository_is_in_one_fold() -> None:
    known = rows(300, 6, "a")
    folds = by_repository(known, 4)
    assert all(
        len({f for r, f in zip(known, folds, strict=True) if r.repo == repo}) == 1
        for repo in {r.repo for r in known}
    )
    assert set(folds) == {0, 1, 2, 3}


def test_one_verdict_only_is_no_reason_to_fail() -> None:
    known = [Row(f"a/{i % 5}", "r", "T", {"x": 1.0}, "") for i in range(40)]
    fitted = train(known, [])
    assert fitted.right is not None and fitted.right.probability({"x": 1.0}) > 0.99
    assert fitted.useful.probability({"x": 1.0}) < 0.01 and fitted.threshold == 0.6


def test_our_trees_say_what_those_of_scikit_learn_say() -> None:
    known = rows(300, 10, "a")
    columns = Columns(known)
    answers = [row.useful for row in known]
    model = _boosted().fit(columns.raw(known), answers)
    prior = sum(answers) / len(answers)
    trees = tuple(_tree(e.tree_, columns.names, model.learning_rate) for e in model.estimators_[:, 0])
    ours = Head(math.log(prior / (1 - prior)), {}, trees=trees)
    expected = model.predict_proba(columns.raw(known))[:, 1]
    assert [ours.probability(row.features) for row in known] == pytest.approx(expected, abs=1e-3)
    parts = ours.parts(known[0].features, {})
    assert ours.bias + sum(tree[0].value for tree in trees) + sum(parts.values()) == pytest.approx(
        ours.log_odds(known[0].features)
    )


def test_a_threshold_is_as_low_as_its_precision_allows() -> None:
    chance = np.linspace(0, 1, 200)
    assert threshold(chance > 0.8, chance) == pytest.approx(1 - 0.2 / PRECISION, abs=0.02)
    assert threshold(chance > 2, chance) == 0.6


@pytest.mark.slow
def test_labelled_fixes_set_no_threshold() -> None:
    drawn = [replace(row, features={**row.features, "stated confidence": 0.9}) for row in rows(400, 12, "a")]
    fixes = [replace(row, drawn=False) for row in drawn]
    assert train(drawn, []).threshold < 0.6
    assert train(fixes, []).threshold == 0.6, "no drawn row tells"


def test_verdicts_about_the_year_of_a_commit_are_left_out(tmp_path: Path) -> None:
    path = _write(tmp_path / "rows", rows(4, 11, "a"))
    first, *others = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | {"dated": True}), *others]), encoding="utf-8")
    assert len(read_rows([path])) == 3


def _write(path: Path, known: list[Row]) -> Path:
    lines = (
        json.dumps({"repo": r.repo, "rule": r.rule, "verdict": r.verdict, "features": dict(r.features)})
        for r in known
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_command_writes_the_data_file(tmp_path: Path) -> None:
    work, other, out = tmp_path / "w", tmp_path / "c", tmp_path / "weights.json"
    _write(work, rows(300, 7, "a"))
    _write(other, rows(100, 8, "b"))
    done = CliRunner().invoke(ranker, ["-w", str(work), "-c", str(other), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "calibrate: 100 comments" in done.output
    assert read(out.read_text("utf-8")).weigh({"often:step": 1.0}).useful > 0.6


def test_a_repository_in_two_parts_is_refused(tmp_path: Path) -> None:
    work = _write(tmp_path / "w", rows(50, 9, "a"))
    done = CliRunner().invoke(ranker, ["-w", str(work), "-j", str(work), "--out", str(tmp_path / "x")])
    assert done.exit_code == 1
    assert "occurs in two parts" in done.output
    assert not (tmp_path / "x").exists()


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"verdict": "R", "features": {"x": 1}}\n')
    with pytest.raises(ValueError, match="line 1"):
        read_rows([path])
