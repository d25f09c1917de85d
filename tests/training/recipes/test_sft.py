"""The recipe as a whole, in this process, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.model

from tests.training.recipes.conftest import losses  # noqa: E402

Recipe = Callable[..., Path]


def trained(recipe: Recipe, *changes: str, base: str | None = None) -> Path:
    """The adapter folder."""
    from training.recipes import sft
    from training.recipes.settings import read

    adapter = sft.train(read(recipe(*changes, base=base)))
    assert adapter is not None
    return adapter


def test_a_run_learns_and_leaves_an_adapter_folder(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptopt.model.adapter_folder import check_folder, why_unusable
    from ptopt.model.calibration import Calibration
    from training.recipes.tracking import read_metrics

    adapter = trained(recipe, "evaluate.rows=4", "evaluate.every=4", "tracking.mlflow=true")
    folder = adapter.parent
    seen = losses(folder)
    assert [step for step, _ in seen] == list(range(1, 9))
    assert seen[-1][1] < 0.95 * seen[0][1]
    check_folder(adapter)
    card = json.loads((adapter / "card.json").read_text())
    assert why_unusable(card) == ""
    assert card["recipe"] == "sft" and card["parent"] is None and card["dataset_hash"] == "0" * 64
    assert card["metrics"]["steps"] == 8 and card["metrics"]["validation_loss"] > 0
    assert Calibration.from_json((adapter / "calibration.json").read_text()) == Calibration.off()
    assert (
        json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == card["base"]
    )
    assert {p.name for p in (folder / "plots").iterdir()} == {"loss.png", "time.png", "tokens-per-second.png"}
    line = read_metrics(folder)[-1]
    assert [check["step"] for check in read_metrics(folder, "eval_loss")] == [4, 8]
    assert sum(line["time"].values()) == pytest.approx(1, abs=1e-3)
    assert line["time"]["forward"] > 0 and line["time"]["backward"] > 0 and line["tokens_per_s"] > 0
    said = capsys.readouterr().err
    assert "not applied here:" in said and "flash attention: no CUDA device" in said
    tracked(folder)


def tracked(folder: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    run = client.get_run((folder / "mlflow-run").read_text())
    assert run.info.status == "FINISHED"
    assert run.data.params["lora.r"] == "4"
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 8
    assert {"adapter", "loss.png"} <= {artifact.path for artifact in client.list_artifacts(run.info.run_id)}


@pytest.mark.parametrize(
    "changes",
    [
        ("optimizer.name=adamw_8bit",),
        ("optimizer.name=paged_adamw_8bit", "activation_checkpointing=true"),
        ("optimizer.name=paged_adamw_32bit", "data.packing=false", "data.order=by-length", "batch.size=2"),
        ("model.four_bit=true", "data.order=curriculum"),
        ("precision=fp32", "data.workers=1"),
    ],
    ids=lambda changes: changes[0],
)
def test_each_switch_trains(recipe: Recipe, changes: tuple[str, ...]) -> None:
    adapter = trained(recipe, *changes, "limits.steps=4", "lora.dropout=0")
    seen = losses(adapter.parent)
    assert len(seen) == 4
    assert seen[-1][1] < seen[0][1]


def test_activation_checkpointing_changes_nothing_but_memory(recipe: Recipe) -> None:
    plain = losses(trained(recipe, "limits.steps=3").parent)
    checkpointed = losses(trained(recipe, "limits.steps=3", "activation_checkpointing=true").parent)
    assert [loss for _, loss in checkpointed] == pytest.approx([loss for _, loss in plain], rel=1e-3)


def test_out_of_memory_is_answered_with_smaller_batches_and_the_same_steps(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.recipes.sft import Trainer

    changes = ("lora.dropout=0", "limits.steps=5", "data.packing=false", "checkpoint.every=2")
    whole = losses(trained(recipe, *changes, "batch.size=4", "batch.accumulation=1").parent)
    step = Trainer.training_step

    def limited(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step >= 3 and len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return step(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(Trainer, "training_step", limited)
    smaller = losses(trained(recipe, *changes, "batch.size=4", "batch.accumulation=1").parent)
    assert "out of memory: 2 rows at once from here on, 2 times a step" in capsys.readouterr().err
    assert [s for s, _ in smaller] == [1, 2, 3, 4, 5]
    assert [x for _, x in smaller] == pytest.approx([x for _, x in whole], rel=5e-3)


def test_other_errors_are_not_taken_for_out_of_memory(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.recipes.sft import Trainer

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Trainer, "training_step", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trained(recipe)


def test_the_minutes_end_a_run_with_an_adapter(recipe: Recipe) -> None:
    adapter = trained(recipe, "limits.minutes=0.00001")
    assert len(losses(adapter.parent)) == 1


def rates(adapter: Path) -> list[float]:
    from training.recipes.tracking import read_metrics

    return [line["learning_rate"] for line in read_metrics(adapter.parent)]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "polynomial", "constant_with_warmup"])
def test_each_step_has_a_learning_rate(schedule: str) -> None:
    from transformers import TrainingArguments

    from training.recipes.trainer import learning_rate

    args = TrainingArguments(output_dir="x", lr_scheduler_type=schedule, warmup_steps=4, use_cpu=True)
    factor = learning_rate(args, 20)
    factors = [factor(step) for step in range(20)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert min(factors) > 0
    assert factors[-1] == 1 if schedule.startswith("constant") else factors[-1] < 0.1


def test_the_first_step_of_a_run_is_not_lost(recipe: Recipe) -> None:
    seen = rates(trained(recipe, "optimizer.warmup=2", "limits.steps=5", "optimizer.lr=0.01"))
    assert seen[0] > 0 and max(seen) == pytest.approx(0.01) and 0 < seen[-1] < 0.003


def test_the_schedule_ends_with_the_steps_that_the_minutes_allow(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4,000 steps eight fit: the rate comes down all the same."""
    from training.recipes.trainer import StopCallback

    monkeypatch.setattr(StopCallback, "_fitting", lambda _, step: 8 if step == 3 else 0)
    adapter = trained(recipe, "limits.steps=4000", "limits.minutes=60", "checkpoint.every=1000")
    seen = rates(adapter)
    assert json.loads((adapter.parent / "planned.json").read_text()) == {"steps": 8, "since": 4}
    assert len(seen) == 8 and seen[:4] == pytest.approx([0.01] * 4, rel=1e-3)
    assert 0 < seen[-1] < 0.001


def test_an_adapter_is_trained_further(recipe: Recipe) -> None:
    from ptopt.model.backends.loading import read_adapter

    first = trained(recipe)
    second = trained(recipe, f"model.adapter={first}", "limits.steps=2", "optimizer.lr=0.0001")
    assert losses(second.parent)[0][1] < 0.95 * losses(first.parent)[0][1]
    assert read_adapter(second).card["parent"] == read_adapter(first).content


@pytest.mark.slow
def test_memory_stays_flat_on_a_cpu(recipe: Recipe, smollm2: Path) -> None:
    """oneDNN keeps what it compiled for each new length: 14 to 21 MB for each with this model, were lengths not padded."""
    from training.recipes.tracking import read_metrics

    adapter = trained(
        recipe,
        "limits.steps=40",
        "limits.epochs=100",
        "lora.dropout=0",
        "data.pack_to=384",
        "batch.accumulation=1",
        "checkpoint.every=1000",
        base=str(smollm2),
    )
    now = [line["memory_now_gib"] for line in read_metrics(adapter.parent)]
    assert len(now) == 40
    assert max(now[20:]) <= 1.05 * now[19]


def test_padded_lengths_change_no_loss(recipe: Recipe) -> None:
    from training.recipes.tracking import read_metrics

    runs = {
        width: trained(
            recipe, f"data.multiple_of={width}", "lora.dropout=0", "limits.steps=4", "precision=fp32"
        )
        for width in (1, 64)
    }
    one, padded = (losses(adapter.parent) for adapter in runs.values())
    assert [loss for _, loss in padded] == pytest.approx([loss for _, loss in one], rel=1e-5)
    counted = [read_metrics(adapter.parent)[-1]["tokens"] for adapter in runs.values()]
    assert counted[0] == counted[1]  # tokens, padding left out


@pytest.mark.slow
def test_the_real_model_learns_and_serves(recipe: Recipe, smollm2: Path) -> None:
    from ptopt.model.backends.local import TransformersBackend
    from tests.training.recipes.conftest import a_sample
    from training.dataset.views import judge_examples

    adapter = trained(
        recipe,
        "limits.steps=3",
        "data.rows=8",
        "lora.dropout=0",
        "optimizer.lr=0.001",
        base=str(smollm2),
    )
    seen = losses(adapter.parent)
    assert seen[-1][1] < seen[0][1]
    backend = TransformersBackend(adapter=adapter, threads=1)
    prompt, answers = judge_examples(a_sample(2))[0]
    (odds,) = backend.score([prompt])
    backend.close()
    assert len(odds) == len(answers)
