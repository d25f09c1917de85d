from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.configs.deliberate import is_trial
from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule

_TRAINER = Setting(
    ("dataloader_num_workers",),
    (0,),
    "{value}: batches are read and collated in the training process, between two steps, while the GPU waits. "
    "Give the loader a few processes.",
    "4",
    "data set and collate function work in other processes",
)
_LOADER = Setting(
    ("num_workers",),
    (0,),
    "{value}: items are read in the process that trains, while the GPU waits. Give the loader a few processes.",
    "4",
    "the data set works in other processes",
)


class LoaderWorkersOff(SettingRule):
    """A configuration asks for a data loader without worker processes.

    ## What it does
    Finds `dataloader_num_workers: 0` in settings of Hugging Face trainers, axolotl and LLaMA-Factory, and `num_workers: 0` of a
    `torch.utils.data.DataLoader` that a Hydra configuration builds, or of the `data` of Lightning's command line.

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
    partly: ClassVar[frozenset[str]] = frozenset({"dataloader_num_workers"})
    kinds = frozenset({"transformers", "axolotl", "llamafactory", "dataloader", "datamodule"})
    prior = 0.65
    when_wrong = "items lie in memory and collating is cheap"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        "transformers": (_TRAINER,),
        "axolotl": (_TRAINER,),
        "llamafactory": (_TRAINER,),
        "dataloader": (_LOADER,),
        "datamodule": (_LOADER,),
    }

    VALID = (
        """
        trainer:
          accelerator: cpu
          max_epochs: 3
        data:
          batch_size: 32
          num_workers: 0
        """,
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
        Invalid("""
            trainer:
              accelerator: gpu
              max_epochs: 20
            data:
              class_path: project.Rays
              init_args:
                batch_size: 1
                num_workers: 0  # !
                # + num_workers: 4
        """),
        Invalid("""
            output_dir: out
            per_device_train_batch_size: 8
            dataloader_num_workers: 0  # !
            # + dataloader_num_workers: 4
        """),
        Invalid("""
            train:
              _target_: torch.utils.data.DataLoader
              batch_size: 64
              num_workers: 0  # !
              # + num_workers: 4
        """),
        Invalid("""
            {
              "per_device_train_batch_size": 4,
              "dataloader_num_workers": 0  # !
              # + "dataloader_num_workers": 4
            }
        """),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        return is_trial(file.path, block.mapping) or (block.kind == "datamodule" and on_host(file))


def on_host(file: ConfigFile) -> bool:
    """Does the trainer beside the data run on a CPU?"""
    root = file.document.root
    return root is not None and root.scalar("trainer", "accelerator") == "cpu"
