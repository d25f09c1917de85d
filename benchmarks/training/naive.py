"""What most tutorials write: `Trainer` as it comes, fp32, padded batches, logits at every position.

The rows, the rank of LoRA, the learning rate and the rows in a step are the recipe's, so that losses compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

from training.recipes.settings import Settings

DROPOUT = 0.1  # what tutorials write


def train(
    settings: Settings, base: Path, rows: Dataset, batch: tuple[int, int], pad_to: int | None, output: Path
) -> None:
    """One epoch; leaves the adapter in `output`. `batch`: rows at once, and how often a step. `pad_to`: tokens; None: the longest row of each batch."""
    torch.manual_seed(settings.seed)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = LoraConfig(
        r=settings.lora.r,
        lora_alpha=settings.lora.alpha,
        lora_dropout=DROPOUT,
        target_modules=list(settings.lora.targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, lora)
    arguments = TrainingArguments(
        output_dir=str(output / "trainer"),
        per_device_train_batch_size=batch[0],
        gradient_accumulation_steps=batch[1],
        num_train_epochs=1,
        learning_rate=settings.optimizer.lr,
        lr_scheduler_type=settings.optimizer.schedule,
        warmup_steps=settings.optimizer.warmup,
        weight_decay=settings.optimizer.weight_decay,
        max_grad_norm=settings.optimizer.max_grad_norm,
        optim="adamw_torch",
        seed=settings.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=rows, data_collator=collator(base, pad_to)).train()
    model.save_pretrained(str(output / "adapter"))


def collator(base: Path, pad_to: int | None) -> DataCollatorForSeq2Seq:
    """Pads rows to `pad_to` tokens; None: to the longest of the batch."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    if tokenizer.pad_token_id is None:  # Llama's has none
        tokenizer.pad_token = tokenizer.eos_token
    return DataCollatorForSeq2Seq(tokenizer, padding="max_length" if pad_to else "longest", max_length=pad_to)
