"""Lightning under Hydra: a logger that code makes for a part of the configuration, and texts that are cut into blocks or padded."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

MAIN = """
import hydra
import lightning as L
import data
from transformers import AutoTokenizer

@hydra.main(version_base=None, config_path="configs", config_name="config")
def main(config):
    logger = None
    if config.get("wandb", None) is not None:
        logger = L.pytorch.loggers.WandbLogger(**config.wandb)
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    loader = data.loader(data.prepared(tokenizer, wrap=config.data.wrap))
    trainer: L.Trainer = hydra.utils.instantiate(config.trainer, logger=logger)
    trainer.fit(data.Net(), loader)

if __name__ == "__main__":
    main()
"""
DATA = """
import functools
import itertools
import os
import lightning as L
import torch

class Net(L.LightningModule):
    def training_step(self, batch, _):
        return self.model(batch).loss

def loader(texts):
    return torch.utils.data.DataLoader(texts, batch_size=8)

def group_texts(examples, block_size):
    joined = list(itertools.chain(*examples["input_ids"]))
    size = block_size - 2
    blocks = []
    for i in range(0, len(joined), size):
        blocks.append(joined[i : i + size])
    return {"input_ids": blocks}

def prepared(tokenizer, wrap):
    if os.path.exists("texts.dat"):
        return torch.load("texts.dat")

    def tokenize(example):
        if wrap:
            return tokenizer(example["text"])
        else:
            return tokenizer(example["text"], padding="max_length", max_length=512)

    texts = load().map(tokenize)
    if not wrap:
        return texts
    return texts.map(functools.partial(group_texts, block_size=512))
"""
CONFIG = """
defaults:
  - _self_
  - /data: {data}

trainer:
  _target_: lightning.Trainer
  precision: bf16
{more}
"""
WANDB = "wandb:\n  project: texts"


def row(audited: Auditor, key: str, wrap: str, more: str = WANDB) -> Measure:
    files = {
        "main.py": MAIN,
        "data.py": DATA,
        "configs/config.yaml": CONFIG.format(data="texts" if wrap else "other", more=more),
        "configs/data/texts.yaml": f"name: texts\nwrap: {wrap or 'true'}\n",
    }
    (entry,) = audited(files).entries
    return next(measure for measure in entry.measures if measure.key == key)


@pytest.mark.parametrize(("more", "state"), [(WANDB, State.ON), ("seed: 1", State.OFF)])
def test_a_part_of_the_configuration_asks_for_a_logger(audited: Auditor, more: str, state: State) -> None:
    found = row(audited, "monitoring", "true", more)
    assert (found.state, found.detail[:13]) == (state, "`WandbLogger`")


@pytest.mark.parametrize(
    ("wrap", "state", "says"),
    [
        ("true", State.ON, "packed or grouped"),
        ("false", State.OFF, "padded to the maximum length (512 tokens)"),
        ("", State.UNKNOWN, "packed or grouped by length, if `config.data.wrap`"),
    ],
)
def test_the_file_that_a_list_of_defaults_chooses_decides_the_branch(
    audited: Auditor, wrap: str, state: State, says: str
) -> None:
    found = row(audited, "padding", wrap)
    assert (found.state, says in found.detail) == (state, True), found.detail


PADS = """
import torch

def main(wrap, texts, tokenizer):
    for text in texts:
        {code}
        loss = model(**batch)
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main(read().wrap, read().texts, tokenizer)
"""


@pytest.mark.parametrize(
    ("test", "noted"),
    [
        ("wrap", "if not `wrap`"),
        ("wrap and texts", "if not `wrap and texts`"),
        ("not wrap", "if `read().wrap`"),
    ],
)
def test_a_condition_of_the_other_branch_is_turned_round(audited: Auditor, test: str, noted: str) -> None:
    code = f"""batch = tokenizer(text) if {test} else tokenizer(text, padding="max_length")"""
    (entry,) = audited({"train.py": PADS.format(code=code)}).entries
    found = next(measure for measure in entry.measures if measure.key == "padding")
    assert (found.state, found.detail.partition(", ")[2]) == (State.UNKNOWN, noted)


TRAIN = """
from dataclasses import dataclass, field
from transformers import AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class DataArguments:
    packing: bool = field(default={default})

def main():
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("gpt2")

    def tokenize(examples):
        return tokenizer(examples["text"], padding="max_length", max_length=512)

    def tokenize_only(examples):
        return tokenizer(examples["text"])

    def group(examples):
        joined = []
        for ids in examples["input_ids"]:
            joined.extend(ids)
        return {{"input_ids": [joined[i : i + 512] for i in range(0, len(joined), 512)]}}

    if data_args.packing:
        texts = load().map(tokenize_only).map(group)
    else:
        texts = load().map(tokenize)
    Trainer(model, training_args, train_dataset=texts).train()

main()
"""


@pytest.mark.parametrize(
    ("default", "command", "state"),
    [
        ("True", "", State.ON),
        ("True", " --packing False", State.OFF),
        ("False", " --packing True", State.ON),
        ("False", "", State.OFF),
    ],
)
def test_a_function_inside_another_runs_where_its_branch_does(
    audited: Auditor, default: str, command: str, state: State
) -> None:
    files = {"train.py": TRAIN.format(default=default), "run.sh": f"python train.py{command} --do_train\n"}
    (entry,) = audited(files).entries
    found = next(measure for measure in entry.measures if measure.key == "padding")
    assert found.state is state, found.detail


def test_a_list_that_grows_and_is_cut_into_batches_is_no_packing(audited: Auditor) -> None:
    code = """
    from transformers import AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained("gpt2")

    def encode(rows):
        texts = []
        for row in rows:
            texts.extend(row["texts"])
        parts = [texts[i : i + 64] for i in range(0, len(texts), 64)]
        return [tokenizer(part, padding="max_length", max_length=512) for part in parts]

    trainer = Trainer(model, TrainingArguments("out"), train_dataset=load().map(encode))
    trainer.train()
    """
    (entry,) = audited({"train.py": code}).entries
    found = next(measure for measure in entry.measures if measure.key == "padding")
    assert found.state is State.OFF, found.detail


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("SFT", State.OFF, "`packing` is off (default of TRL for `packing`)"),
        ("DPO", State.ON, "batches are padded to their longest sequence by TRL"),
        ("GRPO", State.ON, "batches are padded to their longest sequence by TRL"),
    ],
)
def test_only_the_trainer_of_supervised_fine_tuning_packs(
    audited: Auditor, name: str, state: State, said: str
) -> None:
    code = f"""
    from trl import {name}Config, {name}Trainer

    trainer = {name}Trainer(model, args={name}Config("out"), train_dataset=data)
    trainer.train()
    """
    audit = audited({"train.py": code})
    found = next(measure for measure in audit.entries[0].measures if measure.key == "padding")
    assert (found.state, said in found.detail) == (state, True), found
    advised = [gap.action for gap in audit.gaps if gap.key == "padding"]
    assert all(action.startswith("Pack sequences") for action in advised)
    assert bool(advised) is (state is State.OFF)


GIVEN = """
import hydra
import lightning as L
from torch.utils.data import DataLoader

class Texts(L.LightningDataModule):
    def __init__(self, root, num_workers):
        super().__init__()
        self.num_workers = num_workers

    def train_dataloader(self):
        return DataLoader(read(self.root), num_workers=self.num_workers)

@hydra.main(version_base=None, config_path="configs", config_name="config")
def main(config):
    model = hydra.utils.instantiate(config.model)
    L.Trainer().fit(model, datamodule=hydra.utils.instantiate(config.data))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("data", "detail", "state"),
    [
        ("  _target_: main.Texts\n  num_workers: 2\n", "is 2", State.ON),
        ("  _target_: main.Texts\n  init_args:\n    num_workers: 3\n", "is 3", State.ON),
        ("  _target_: main.Others\n  num_workers: 2\n", "", State.UNKNOWN),
    ],
)
def test_a_configuration_gives_a_class_its_arguments(
    audited: Auditor, data: str, detail: str, state: State
) -> None:
    files = {
        "main.py": GIVEN,
        "configs/config.yaml": f"model:\n  _target_: main.Net\n  lr: 0.1\ndata:\n{data}",
    }
    (entry,) = audited(files).entries
    found = next(measure for measure in entry.measures if measure.key == "workers")
    assert (found.state, detail in found.detail) == (state, True)
