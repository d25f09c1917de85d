"""The live view, its clock, and what is kept of a run."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from training.recipes.live import PHASES, LiveView, PhaseTimer
from training.recipes.tracking import Tracker, flatten, read_metrics


def line(step: int, loss: float = 1.0) -> dict[str, object]:
    return {
        "step": step, "loss": loss, "learning_rate": 1e-4, "tokens_per_s": 1234.5, "tokens_per_cpu_s": 987.6,
        "memory_gib": 1.25, "utilisation": 0.91, "time": {"data": 0.1, "forward": 0.3, "backward": 0.5, "optimizer": 0.1, "other": 0.0},
    }  # fmt: skip


def test_time_counts_for_the_innermost_phase() -> None:
    clock = PhaseTimer()
    with clock.phase("backward"):
        with clock.phase("forward"):
            time.sleep(0.03)
        time.sleep(0.01)
    seconds = dict(clock.seconds)
    assert seconds["forward"] >= 0.03 and seconds["backward"] >= 0.01
    shares = clock.shares()
    assert tuple(shares) == PHASES
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["forward"] > shares["backward"] > 0 == shares["data"]
    assert clock.shares()["forward"] == 0  # since the last call


def test_all_of_a_pause_counts_for_the_pause() -> None:
    clock = PhaseTimer()
    with clock.phase("evaluation"):
        with clock.phase("forward"):
            time.sleep(0.02)
        time.sleep(0.01)
    assert clock.pauses()["evaluation"] >= 0.03
    assert clock.shares()["forward"] == 0
    assert clock.pauses() == {"checkpoint": 0.0, "evaluation": 0.0}  # since the last call


def test_without_a_terminal_there_are_plain_lines() -> None:
    out = io.StringIO()
    view = LiveView("t", Console(file=out, width=200))
    view.steps = 3
    with view:
        for step in (1, 2, 3):
            view.update(line(step), "Data-bound: it waits.")
    first, bound, last = out.getvalue().splitlines()  # the second step came too soon to be shown
    assert bound == "Data-bound: it waits."  # once, as long as it is the same
    assert first.startswith("step 1/3 loss 1.0000 1,234 tokens/s 1.2 GiB, data 10% forward 30%")
    assert last.startswith("step 3/3") and last.endswith("91% utilised, 0:00:00 left")


def test_on_a_terminal_there_is_a_table() -> None:
    out = io.StringIO()
    view = LiveView("t", Console(file=out, force_terminal=True, width=100))
    view.steps = 3
    with view:
        view.update(line(1, 2.0), "Compute-bound: [b]1.")
        view.update(line(2, 1.0), "Compute-bound: [b]2.")
    shown = out.getvalue()
    assert "step 2/3" in shown and "1,234" in shown and "forward 30%" in shown and "█▁" in shown
    assert "91% utilised" in shown and "Compute-bound: [b]2." in shown


def test_a_resumed_run_writes_anew_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path, name="r", experiment="e", mlflow=False, params={})
    for step in range(1, 6):
        tracker.log(line(step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')  # killed while it wrote
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    tracker.back_to(3)
    tracker.log(line(4))
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 3, 4]


def test_nested_settings_become_flat_parameters() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": 3}) == {"a.b.c": 1, "a.d": [2], "e": 3}
