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
from training.recipes.metrics import MetricsCallback
from training.recipes.run import Run
from training.recipes.settings import Settings
from training.recipes.setup import Setup, open_run, quiet
from training.recipes.tokens import IGNORED, arrange, token_rows
from training.recipes.trace import TraceCallback
from training.recipes.tracking import Tracker
from training.recipes.trainer import StopCallback, TrainerMixin, until_it_fits


class Trainer(TrainerMixin, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with a loss in which each row counts the same, computed only where a label is.

    By TRL, each label would: an explanation has twenty times those of a judge's row, which would hardly be learned.
    """

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """The batches of a step, and the number of rows in them that have labels, of all processes."""
        batches, labels = super().get_batch_samples(epoch_iterator, num_batches, device)
        if labels is None:
            return batches, None
        rows = sum(label_weights(batch).sum() for batch in batches).to(device)
        return batches, self.accelerator.gather(rows).sum()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if return_outputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with self.clock.phase("forward"):
            # On a GPU, TRL's fused head does the same in tiles, in a kernel; without one it would score all positions.
            losses = label_losses if inputs["input_ids"].device.type == "cpu" else fused_label_losses
            weights = label_weights(inputs)
            total = (losses(model, inputs) * weights).sum()
            loss = total / (weights.sum() if num_items_in_batch is None else num_items_in_batch).clamp(min=1)
            # Gradients are averaged over the processes, and `num_items_in_batch` counts the rows of all of them.
            return loss if num_items_in_batch is None else loss * self.accelerator.num_processes


def label_losses(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """The cross-entropy of the label that follows each position [rows, length - 1], 0 where there is none.

    Logits exist only at positions with a label. inputs: `input_ids` and `labels` [rows, length], and `position_ids`
    (packed rows) or `attention_mask` (padded rows).
    """
    labels = inputs["labels"][:, 1:]
    keep = (labels != IGNORED).any(dim=0).nonzero().squeeze(-1)
    read = {name: inputs[name] for name in ("input_ids", "position_ids", "attention_mask") if name in inputs}
    # A cache would hide the borders of packed rows from the attention mask: they would read each other.
    logits = model(**read, use_cache=False, logits_to_keep=keep).logits.float()
    kept = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels[:, keep], ignore_index=IGNORED, reduction="none"
    )
    return torch.zeros(labels.shape, device=kept.device).index_copy(1, keep, kept)


def fused_label_losses(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """As `label_losses`, of a model with TRL's fused head."""
    losses: torch.Tensor = -model(**inputs, use_cache=False, fused_lm_head=True).log_probs
    return losses


def label_weights(inputs: dict[str, Any]) -> torch.Tensor:
    """The weight of the label that follows each position [rows, length - 1]: they add up to 1 in each row with labels.

    A packed row holds several; each begins at position 0.
    """
    labelled = inputs["labels"][:, 1:] != IGNORED
    row = torch.arange(labelled.shape[0], device=labelled.device)[:, None] * inputs["labels"].shape[1]
    if "position_ids" in inputs:
        row = row + (inputs["position_ids"] == 0).cumsum(1)[:, 1:] - 1
    row = row.expand_as(labelled)
    counts = torch.zeros(inputs["labels"].numel(), device=labelled.device)
    counts.index_add_(0, row.flatten(), labelled.flatten().to(counts.dtype))
    return labelled / counts[row].clamp(min=1)


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
    watch, stop = (
        MetricsCallback(trainer, settings, view, tracker),
        StopCallback(trainer, settings.limits.minutes),
    )
    trainer.add_callback(watch)
    trainer.add_callback(stop)
    if settings.tracking.trace:
        trainer.add_callback(TraceCallback(run.folder, settings.tracking.trace))
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
