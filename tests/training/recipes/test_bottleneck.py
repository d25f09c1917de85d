"""What bounds a run: bottlenecks seeded in figures, and in the metrics of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from training.__main__ import main
from training.recipes.bottleneck import Figures, Kind, figures_of, report, targets, verdict
from training.recipes.settings import Settings, to_yaml

HEALTHY = {
    "data": 0.01, "forward": 0.36, "backward": 0.57, "optimizer": 0.03, "other": 0.02, "checkpoint": 0.01, "evaluation": 0.0,
}  # fmt: skip


def settings(**sections: Any) -> Settings:
    given = {"name": "t", "model": {"base": "b"}, "data": {"folder": "d"}, "compile": "default", **sections}
    return Settings.model_validate(given)


def figures(change: dict[str, float] | None = None, **fields: Any) -> Figures:
    """Of a healthy run, with some shares of the time changed at the cost of the backward pass."""
    time = HEALTHY | (change or {})
    time["backward"] += 1 - sum(time.values())
    return dataclasses.replace(Figures(time, 1000.0, 0.02, 0.7, 0.95, cores=8), **fields)


@pytest.mark.parametrize(
    ("seen", "given", "kind", "evidence", "change"),
    [
        (figures({"data": 0.3}), {}, "data", "30% of the time waits for batches", "data.workers=2 in place of 0"),
        (figures({"data": 0.3}), {"data": {"folder": "d", "workers": 4}}, "data", "30%", "data.workers=8 in place of 4"),
        (
            figures({"data": 0.3}, cores=2), {"data": {"folder": "d", "workers": 1}}, "data", "30%",
            "data.prefetch=4 in place of 2",
        ),
        (
            figures({"data": 0.3}, cuda=True), {"data": {"folder": "d", "pin": False, "workers": 2}}, "data", "30%",
            "data.pin=true",
        ),
        (figures({"data": 0.3}, cores=1), {}, "data", "30%", "faster disk"),
        (figures({"checkpoint": 0.5}), {"checkpoint": {"every": 1}}, "checkpoints", "50%", "checkpoint.every=19"),
        (figures({"evaluation": 0.2}), {"evaluate": {"every": 10, "rows": 64}}, "evaluation", "20%", "evaluate.every=48"),
        (figures(padding=0.4), {"data": {"folder": "d", "packing": False}}, "padding", "40%", "data.packing=true"),
        (figures(padding=0.4), {}, "padding", "40%", "data.pack_to"),
        (figures({"optimizer": 0.4}), {"optimizer": {"name": "adamw_torch"}}, "optimizer", "40%", "adamw_torch_fused"),
        (figures({"optimizer": 0.4}), {}, "optimizer", "40%", "batch.accumulation=8 in place of 4"),
        (figures(utilisation=0.4), {}, "idle", "CPU is 40% utilised (target 85%)", "threads"),
        (
            figures(utilisation=0.4, cuda=True, memory=0.3), {}, "idle", "GPU is 40% utilised",
            "batch.size=8 batch.accumulation=2: 30% of the memory",
        ),
        (figures({"other": 0.3}, utilisation=None, cuda=True), {"compile": "off"}, "idle", "30%", "compile=default"),
        (figures(), {}, "compute", "forward takes 36% and backward 57%", "lora.last=N"),
        (figures(), {"precision": "fp32"}, "compute", "95% utilised", "precision=bf16"),
        (
            figures(memory=0.3, cuda=True), {"activation_checkpointing": True}, "compute", "36%",
            "activation_checkpointing=false: 30%",
        ),
    ],
)  # fmt: skip
def test_a_seeded_bottleneck(
    seen: Figures, given: dict[str, Any], kind: Kind, evidence: str, change: str
) -> None:
    found = verdict(seen, settings(**given))
    assert found.kind == kind
    assert evidence in found.evidence
    assert any(change in advice for advice in found.changes)
    assert str(found).count("To change: ") == 1


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ({"data": 0.2}, {"padding": 0.5}, "data"),
        ({"checkpoint": 0.2, "data": 0.2}, {"utilisation": 0.3}, "checkpoints"),
        ({"data": 0.2}, {"utilisation": 0.2}, "data"),  # the device is idle because of it
        ({"optimizer": 0.3}, {"utilisation": 0.2}, "optimizer"),
    ],
)
def test_of_several_the_one_that_hides_the_others_is_named(
    first: dict[str, float], second: dict[str, float], kind: Kind
) -> None:
    assert verdict(figures(first, **second), settings()).kind == kind


def test_a_limit_that_is_reached_is_kept() -> None:
    at_limit = figures({"data": 0.05, "optimizer": 0.15, "checkpoint": 0.1}, padding=0.15, utilisation=0.85)
    assert verdict(at_limit, settings()).kind == "compute"


def test_targets() -> None:
    wanted = settings(tracking={"target": 1200})
    assert [(t.name, t.reached) for t in targets(figures(), wanted)] == [
        ("waiting for batches", True), ("utilisation of the CPU", True), ("tokens/s", False),
    ]  # fmt: skip
    unknown = targets(figures({"data": 0.06}, utilisation=None, tokens_per_s=1200.0), wanted)
    assert [(t.name, t.reached) for t in unknown] == [("waiting for batches", False), ("tokens/s", True)]
    assert figures(utilisation=None).idle == pytest.approx(0.04)
    assert figures(utilisation=0.9).idle == pytest.approx(0.1)


def lines(*data: float, seconds: float = 2.0, pause: float = 0.0) -> list[dict[str, Any]]:
    """Metrics of a run of which these shares of each step went to waiting for batches."""
    return [
        {
            "step": step, "loss": 1.0, "seconds": seconds, "tokens_per_s": 500.0 * step, "padding": 0.0, "memory_share": 0.1 * step,
            "utilisation": 0.9, "cuda": False, "cores": 4, "pauses": {"checkpoint": pause, "evaluation": 0.0},
            "time": {"data": share, "forward": 0.3, "backward": 0.7 - share, "optimizer": 0.0, "other": 0.0},
        }
        for step, share in enumerate(data, 1)
    ]  # fmt: skip


def test_figures_of_a_run_are_without_its_first_step_and_by_time() -> None:
    seen = figures_of(lines(0.6, 0.1, 0.3))
    assert seen.time["data"] == pytest.approx(0.2)
    assert seen.tokens_per_s == pytest.approx(1250) and seen.memory == pytest.approx(0.3)
    paused = figures_of(lines(0.1, 0.1, pause=0.5))
    assert (paused.time["checkpoint"], paused.time["data"]) == (pytest.approx(0.25), pytest.approx(0.075))
    with pytest.raises(ValueError, match="no metrics"):
        figures_of([])


def test_the_report_of_a_finished_run(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(to_yaml(settings(tracking={"target": 2000})))
    metrics = lines(0.2, 0.2, 0.2)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    shown = CliRunner().invoke(main, ["bottleneck", str(tmp_path)])
    assert shown.exit_code == 0
    assert shown.output == report(metrics, settings(tracking={"target": 2000}))
    assert "| 20.0% | 30.0% | 50.0% |" in shown.output
    assert "| tokens/s | 1,250 | >= 2,000 | no |" in shown.output
    assert (
        "**Data-bound: 20% of the time waits for batches (limit 5%). To change: data.workers=2"
        in shown.output
    )
    (tmp_path / "metrics.jsonl").write_text("")
    empty = CliRunner().invoke(main, ["bottleneck", str(tmp_path)])
    assert empty.exit_code == 1 and "no metrics yet" in empty.output
