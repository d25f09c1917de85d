from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.configs.deliberate import is_trial
from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule, Severity

_TRAINER = Setting(
    ("dataloader_num_workers",),
    (0,),
    "{value}: batches are read and collated in the training process, between two steps, while the GPU waits. "
    "Give the loader a few processes.",
    "4",
    "data set and collate function work in other processes",
)


class LoaderWorkersOff(SettingRule):
    """A configuration asks for a data loader without worker processes.

    ## What it does
    Finds `dataloader_num_workers: 0` in settings of Hugging Face trainers, axolotl and LLaMA-Factory, and `num_workers: 0` of a
    `torch.utils.data.DataLoader` that a Hydra configuration builds.

    ## Why it is slow
    Items are read, decoded, tokenised and collated in the process that launches GPU work, between two steps. Workers
    prepare the next batches while the GPU computes.

    ## When this is wrong
    When items lie in memory and collating is cheap, or on a machine where processes cannot be forked.

    ## Example
    ```yaml
    per_device_train_batch_size: 8
    dataloader_num_workers: 0
    ```

    ## Use instead
    ```yaml
    per_device_train_batch_size: 8
    dataloader_num_workers: 4
    ```

    ## Fix safety
    Unsafe: the data set and the collate function must be usable from other processes.

    ## Sources
    - [PyTorch: performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    - [transformers: TrainingArguments](https://huggingface.co/docs/transformers/main_classes/trainer)
    """

    id = "PTO011"
    name = "loader-workers-off"
    family = "config"
    severity = Severity.MEDIUM
    partly: ClassVar[frozenset[str]] = frozenset({"dataloader_num_workers"})
    kinds = frozenset({"transformers", "axolotl", "llamafactory", "dataloader"})
    prior = 0.65
    when_wrong = "items lie in memory and collating is cheap"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        "transformers": (_TRAINER,),
        "axolotl": (_TRAINER,),
        "llamafactory": (_TRAINER,),
        "dataloader": (
            Setting(
                ("num_workers",),
                (0,),
                "{value}: items are read in the process that trains, while the GPU waits. Give the loader a few processes.",
                "4",
                "the data set works in other processes",
            ),
        ),
    }

    VALID = (
        """
        per_device_train_batch_size: 8
        dataloader_num_workers: 4
        """,
        """
        model: small
        num_workers: 0
        """,
        """
        train:
          _target_: torch.utils.data.DataLoader
          num_workers: ${workers}
        """,
    )
    INVALID = (
        Invalid(
            """
            output_dir: out
            per_device_train_batch_size: 8
            dataloader_num_workers: 0  # !
            """,
            """
            output_dir: out
            per_device_train_batch_size: 8
            dataloader_num_workers: 4
            """,
        ),
        Invalid(
            """
            train:
              _target_: torch.utils.data.DataLoader
              batch_size: 64
              num_workers: 0  # !
            """,
            """
            train:
              _target_: torch.utils.data.DataLoader
              batch_size: 64
              num_workers: 4
            """,
        ),
        Invalid(
            """
            {
              "per_device_train_batch_size": 4,
              "dataloader_num_workers": 0  # !
            }
            """,
            """
            {
              "per_device_train_batch_size": 4,
              "dataloader_num_workers": 4
            }
            """,
        ),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        return is_trial(file.path, block.mapping)
