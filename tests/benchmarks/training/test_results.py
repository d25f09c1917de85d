"""Ratios, noise, tables and plots of a training benchmark, from numbers that are given."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from benchmarks.training.results import (
    Measurement,
    Result,
    SkippedVariant,
    as_good,
    loss_noise,
    lowest,
    markdown,
    noise,
    plot,
    ratio,
)


def _measured(
    name: str, cpu_s: float, wall_s: float = 0.0, loss: float = 1.0, peak: float = 2000.0
) -> Measurement:
    return Measurement(name, name.title(), (), 1000, 4, cpu_s, wall_s or cpu_s, 1.0, peak, loss)


def _result(*measured: Measurement, device: str = "cpu") -> Result:
    skipped = (SkippedVariant("compile", "Compiled", "needs a GPU"),)
    return Result(
        "Some CPU", device, {"torch": "2.13"}, "2026-01-01", "python -m benchmarks.training", "c.yaml", "base", 4, 1000,
        30, 4.2, measured, skipped,
    )  # fmt: skip


RESULT = _result(
    _measured("naive", 10.0, loss=0.70), _measured("recipe", 4.0, wall_s=5.0, loss=0.72), _measured("bf16", 8.0),
    _measured("recipe", 4.4, loss=0.74), _measured("naive", 11.0, loss=0.75),
)  # fmt: skip


def test_a_ratio_takes_all_runs_of_both_sides() -> None:
    assert ratio(RESULT, "recipe", "cpu") == pytest.approx(math.sqrt(10 * 11) / math.sqrt(4 * 4.4))
    assert ratio(RESULT, "bf16", "cpu", against="recipe") == pytest.approx(math.sqrt(4 * 4.4) / 8)
    assert math.isnan(ratio(RESULT, "compile", "cpu"))


def test_the_lowest_pair_is_the_slowest_recipe_against_the_fastest_naive_run() -> None:
    assert lowest(RESULT) == pytest.approx(10 / 4.4)


def test_noise_is_what_one_variant_differs_by_when_it_runs_twice() -> None:
    assert noise(RESULT, "cpu") == pytest.approx(1.1)
    assert loss_noise(RESULT) == pytest.approx(0.05)
    assert math.isnan(noise(_result(_measured("naive", 1.0)), "cpu"))


def test_equal_loss_is_no_more_than_noise_above_the_naive_one() -> None:
    assert as_good(RESULT) == ["recipe"]  # 0.73 within 0.05 of 0.725; bf16 has 1.0
    worse = _result(_measured("naive", 10.0, loss=0.5), _measured("recipe", 1.0, loss=0.9))
    assert as_good(worse) == []
    assert "No variant had a loss as low" in markdown(worse)
    assert "the fastest is: Recipe" in markdown(RESULT)


def test_a_result_survives_being_stored() -> None:
    assert Result.from_json(RESULT.to_json()) == RESULT
    assert json.loads(RESULT.to_json())["measured"][1]["wall_s"] == 5.0


def test_the_table_has_a_row_a_variant_and_says_what_was_not_run() -> None:
    table = markdown(RESULT)
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[1:]] == [
        "Naive (mean of 2)", "Recipe (mean of 2)", "Bf16",
    ]  # fmt: skip
    assert "2.50 ×" in table and "lowest pair 2.27 ×" in table
    assert "- Compiled: needs a GPU" in table
    assert "nan" not in table


def test_a_gpu_is_measured_by_the_wall_clock() -> None:
    table = markdown(dataclasses.replace(RESULT, device="cuda"))
    assert "wall time" in table and "cpu time" not in table


def test_the_plot_is_an_image_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        plot(RESULT, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_stored_results_are_what_their_tables_say() -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "training" / "results"
    for file in folder.glob("*.json"):
        result = Result.from_json(file.read_text(encoding="utf-8"))
        assert file.with_suffix(".md").read_text(encoding="utf-8").startswith(markdown(result))
        assert file.with_suffix(".svg").exists()
