"""The command: a report from a dataset and cases, and what is written beside an adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")
pytest.importorskip("matplotlib")

from click.testing import CliRunner

from ptopt.model.calibration import Calibration
from training.__main__ import main

pytestmark = pytest.mark.model

PLOTS = ("precision_recall.png", "real_commits.png", "reliability.png", "roc.png")


def _evaluate(*options: object) -> str:
    done = CliRunner().invoke(
        main, ["evaluate", "--resamples", "40", *map(str, options)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_baselines_alone_make_a_report(dataset: Path, cases: Path, tmp_path: Path) -> None:
    said = _evaluate("--data", dataset, "--cases", cases, "--out", tmp_path)
    assert "No adapter was measured." in said
    text = (tmp_path / "report.md").read_text()
    for words in ("## Judge, held-out projects", "The rules themselves are not in this table", "## Real commits",
                  "| rules alone |", "| rules + TF-IDF + logistic regression |", "2 of 2", "0" * 64):  # fmt: skip
        assert words in text
    assert "Findings of the model's own" not in text
    for name in PLOTS:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG") and f"]({name})" in text
    values = json.loads((tmp_path / "report.json").read_text())
    assert values["judged"]["TF-IDF + logistic regression"]["auc"]["value"] > 0.9
    assert values["pool"]["commits"] == {"problem": 2, "clean": 2, "whole": 2}
    assert values["rules"]["at_default"]["found"] == 2
    assert values["origin"]["hashes"]["dataset"] == "0" * 64


def test_the_same_data_gives_the_same_numbers(dataset: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        _evaluate("--data", dataset, "--out", tmp_path / name)
    one, two = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("one", "two"))
    assert one["judged"] == two["judged"]


def test_without_cases_there_is_no_part_on_them(dataset: Path, tmp_path: Path) -> None:
    _evaluate("--data", dataset, "--out", tmp_path)
    assert "Real commits" not in (tmp_path / "report.md").read_text()
    assert not (tmp_path / "real_commits.png").exists()


def test_folders_that_hold_something_else_are_named(dataset: Path, tmp_path: Path) -> None:
    for options in (("--data", tmp_path), ("--data", dataset, "--cases", tmp_path)):
        done = CliRunner().invoke(main, ["evaluate", *map(str, options), "--out", str(tmp_path / "out")])
        assert done.exit_code == 1 and str(tmp_path) in done.output and "Traceback" not in done.output


@pytest.mark.slow
def test_a_real_model_is_measured_and_stays_off(
    make_adapter: Callable[..., Path], dataset: Path, cases: Path, tmp_path: Path
) -> None:
    """An adapter of random weights on the real small model: no gain, so no say; its card tells what was measured."""
    adapter = make_adapter(1)
    said = _evaluate(
        "--adapter",
        adapter,
        "--data",
        dataset,
        "--cases",
        cases,
        "--out",
        tmp_path,
        "--limit",
        4,
        "--advised",
        1,
    )
    assert "The judge is off" in said
    assert Calibration.from_json((adapter / "calibration.json").read_text()) == Calibration.off()
    card = json.loads((adapter / "card.json").read_text())
    assert card["calibration"].startswith("The judge is off")
    assert card["metrics"]["evaluation"]["held_out"]["auc"]["value"] is not None
    assert "What its word is worth" in (adapter / "README.md").read_text()
    text = (tmp_path / "report.md").read_text()
    assert "| base model |" in text and "| fine-tuned |" in text and "Findings of the model's own" in text
    values = json.loads((tmp_path / "report.json").read_text())
    for name in ("base model", "fine-tuned"):
        assert values["advised"][name]["answers"] == 1
        assert values["advised"][name]["valid"] in (0, 1)  # it may speak of lines that were not shown


@pytest.mark.slow
def test_what_is_in_a_registry_is_not_changed(
    make_adapter: Callable[..., Path], dataset: Path, tmp_path: Path
) -> None:
    kept = tmp_path / ("a" * 64)
    make_adapter(2).rename(kept)
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    said = _evaluate(
        "--adapter", kept, "--data", dataset, "--out", tmp_path / "out", "--limit", 3, "--advised", 0
    )
    assert "it was not measured on real commits" in said and "is in a registry" in said
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
