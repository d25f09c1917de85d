"""Supervised fine-tuning: a LoRA adapter that judges, advises and explains, from a dataset of samples.

    python -m training sft configs/smollm2-cpu.yaml lora.r=8
    torchrun --nproc-per-node 4 -m training.recipes.sft configs/llama32-3b-gpu.yaml batch.accumulation=1

TRL's SFTTrainer runs the loop, PEFT holds the adapter. Rows come as token ids with labels (`training/recipes/tokens.py`), so that
the model reads in training what it is served later.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from training.recipes.finish import finish
from training.recipes.live import LiveView
from training.recipes.run import Run
from training.recipes.settings import Settings
from training.recipes.setup import Setup, open_run, quiet
from training.recipes.tokens import IGNORED, arrange, token_rows
from training.recipes.tracking import Tracker
from training.recipes.trainer import MetricsCallback, StopCallback, TrainerMixin, until_it_fits


class Trainer(TrainerMixin, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with the loss computed only where a label is, on a CPU too."""

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if return_outputs or inputs["input_ids"].device.type != "cpu":
            # On a GPU, TRL's fused head does the same in tiles, in a kernel; without one it would score all positions.
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with self.clock.phase("forward"):
            total, count = labelled_loss(model, inputs)
            loss = total / (count if num_items_in_batch is None else num_items_in_batch)
            # Gradients are averaged over the processes, and `num_items_in_batch` counts the labels of all of them.
            shared = self.args.average_tokens_across_devices and num_items_in_batch is not None
            return loss * self.accelerator.num_processes if shared else loss


def labelled_loss(model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, int]:
    """Sum of the cross-entropy over the labels, and their number. Logits exist only at positions with a label.

    inputs: `input_ids` and `labels` [rows, length], and `position_ids` (packed rows) or `attention_mask` (padded rows).
    """
    labels = torch.nn.functional.pad(
        inputs["labels"][:, 1:], (0, 1), value=IGNORED
    )  # position i predicts label i + 1
    keep = (labels != IGNORED).any(dim=0).nonzero().squeeze(-1)
    read = {name: inputs[name] for name in ("input_ids", "position_ids", "attention_mask") if name in inputs}
    # A cache would hide the borders of packed rows from the attention mask: they would read each other.
    logits = model(**read, use_cache=False, logits_to_keep=keep).logits.float()
    kept = labels[:, keep]
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), kept.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, max(1, int((kept != IGNORED).sum()))


def train(settings: Settings, resume: Path | None = None) -> Path | None:
    """Run the recipe; returns the adapter folder, or None where SIGTERM ended it (go on with `resume`)."""
    quiet()
    setup = Setup(settings)
    first = PartialState().is_main_process
    run = open_run(settings, resume)
    tokenizer = setup.tokenizer()
    rows, validation = _data(settings, setup, tokenizer)
    view = LiveView(f"{settings.name} (sft)") if first else None
    log = view.print if view is not None else lambda text: None
    log(f"run: {run.folder}\nbase: {settings.model.base}, {setup.dtype}, attention {setup.attention}")
    log("not applied here:" + "".join(f"\n  - {note}" for note in setup.notes))
    tracker = Tracker.of(run.folder, settings) if first else None

    def attempt(settings: Settings) -> Path | None:
        setup.settings = settings
        return _train(setup, run, tokenizer, rows, validation, view, tracker)

    return until_it_fits(settings, attempt, log)


def _data(settings: Settings, setup: Setup, tokenizer: Any) -> tuple[Any, Any]:
    """Token rows to train on, in order, and those of the validation loss (None: not wanted)."""
    data, seed = settings.data, settings.seed
    rows = token_rows(data, tokenizer, setup.base_hash, "train", seed=seed, limit=data.rows)
    if not settings.evaluate.rows:
        return arrange(rows, data, seed), None
    validation = token_rows(
        data, tokenizer, setup.base_hash, "validation", seed=seed, limit=settings.evaluate.rows
    )
    return arrange(rows, data, seed), arrange(validation, data, seed)


def _train(
    setup: Setup,
    run: Run,
    tokenizer: Any,
    rows: Any,
    validation: Any,
    view: LiveView | None,
    tracker: Tracker | None,
) -> Path | None:
    settings = setup.settings
    run.begin()
    last = run.last_checkpoint()
    if tracker is not None:
        tracker.back_to(last[1] if last else 0)
    data = settings.data
    strategy = {"shuffled": "random", "by-length": "group_by_length", "curriculum": "sequential"}[data.order]
    arguments = SFTConfig(
        **setup.arguments(run),
        packing=data.packing,  # the rows are packed already: this numbers positions and drops the padding
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy=strategy,
        prediction_loss_only=True,
    )
    trainer = Trainer(
        model=setup.model(),
        args=arguments,
        train_dataset=rows,
        eval_dataset=validation,
        processing_class=tokenizer,
        peft_config=setup.lora(),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.attach(run, settings.checkpoint.keep)
    watch, stop = MetricsCallback(trainer, view, tracker), StopCallback(trainer, settings.limits.minutes)
    trainer.add_callback(watch)
    trainer.add_callback(stop)
    with view or nullcontext():
        trainer.train(resume_from_checkpoint=str(last[0]) if last else None)
    if stop.terminated:
        if view is not None and tracker is not None:
            tracker.finish([], "KILLED")
            view.print(f"stopped at step {trainer.state.global_step}; to go on: --resume {run.folder}")
        return None
    return finish("sft", setup, run, trainer, watch.totals(), view, tracker)


if __name__ == "__main__":
    from training.recipes.cli import sft

    sft()
