"""Bottlenecks seeded in real short runs, as the live view and the report of the run name them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.model

from training.recipes import sft  # noqa: E402
from training.recipes.bottleneck import figures_of, verdict  # noqa: E402
from training.recipes.settings import Settings, read  # noqa: E402
from training.recipes.tracking import read_metrics  # noqa: E402


def trained(recipe: Callable[..., Path], *changes: str) -> tuple[Settings, Path]:
    settings = read(recipe("limits.steps=3", *changes))
    adapter = sft.train(settings)
    assert adapter is not None
    return settings, adapter.parent


def test_slow_batches(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = sft.Trainer.get_batch_samples

    def late(trainer: Any, batches: Any, number: int, device: Any) -> Any:
        """As from a slow disk: the sleep is within the iteration over batches."""
        slow = (time.sleep(0.5) or batch for batch in batches)  # type: ignore[func-returns-value]
        return prepare(trainer, slow, number, device)

    monkeypatch.setattr(sft.Trainer, "get_batch_samples", late)
    settings, folder = trained(recipe, "checkpoint.every=9")
    seen = figures_of(read_metrics(folder))
    assert seen.time["data"] > 0.3
    found = verdict(seen, settings)
    assert found.kind == "data"
    assert str(found) in (folder / "time.md").read_text()
    assert str(found) in capsys.readouterr().err


def test_a_checkpoint_after_each_step(recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    publish = sft.Trainer._publish_checkpoint

    def slow(*args: Any) -> None:
        time.sleep(0.3)
        publish(*args)

    monkeypatch.setattr(sft.Trainer, "_publish_checkpoint", slow)
    settings, folder = trained(recipe, "checkpoint.every=1")
    found = verdict(figures_of(read_metrics(folder)), settings)
    assert found.kind == "checkpoints" and "in place of 1" in found.changes[0]


def test_padding_that_is_computed(recipe: Callable[..., Path]) -> None:
    settings, folder = trained(recipe, "data.packing=false", "data.multiple_of=384", "checkpoint.every=9")
    seen = figures_of(read_metrics(folder))
    assert 0.3 < seen.padding < 1 and sum(seen.time.values()) == pytest.approx(1, abs=0.01)
    found = verdict(seen, settings)
    assert found.kind == "padding" and "data.packing=true" in found.changes
