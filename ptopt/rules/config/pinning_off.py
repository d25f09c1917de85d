from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid
from ptopt.rules.config.loader_workers_off import on_host
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule

_WHY = (
    "{value}: batches are copied to the GPU from pageable memory, so each copy goes through a buffer of the driver and the "
    "training process waits for it. Pinned memory lets copies run beside computation."
)
_TRAINER = Setting(("dataloader_pin_memory",), (False,), _WHY, "true", "the host has memory to spare")
_OFFLOAD = (
    "{value} with offload to the CPU: the states cross PCIe in each step, from pageable memory at a fraction of its rate. "
    "`true` costs page-locked host memory."
)


class PinningOff(SettingRule):
    """A configuration switches pinned host memory off.

    ## What it does
    Finds `dataloader_pin_memory: false` of Hugging Face trainers, axolotl and LLaMA-Factory, `pin_memory: false` in the `data` of
    Lightning's command line, and `"pin_memory": false` where
    DeepSpeed offloads to the CPU.

    ## Why it is slow
    A copy from pageable memory is staged through a buffer of the driver and blocks the process that launches it; one from
    pinned memory runs at the full rate of the bus, beside computation.

    ## Fix safety
    Unsafe: pinned memory cannot be swapped out, so that the host must have enough of it.

    ## Sources
    - [DeepSpeed: offload options](https://www.deepspeed.ai/docs/config-json/)
    - [PyTorch: pinned memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO012"
    name = "pinning-off"
    family = "config"
    partly: ClassVar[frozenset[str]] = frozenset({"dataloader_pin_memory"})
    kinds = frozenset({"transformers", "axolotl", "llamafactory", "deepspeed", "datamodule"})
    prior = 0.6
    when_wrong = "host memory is short, or there is no GPU"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        **dict.fromkeys(("transformers", "axolotl", "llamafactory"), (_TRAINER,)),
        "datamodule": (Setting(("pin_memory",), (False,), _WHY, "true", "the host has memory to spare"),),
        "deepspeed": tuple(
            Setting(
                ("zero_optimization", part, "pin_memory"),
                (False,),
                _OFFLOAD,
                "true",
                "the host has memory to spare",
            )
            for part in ("offload_optimizer", "offload_param")
        ),
    }

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        if block.kind == "deepspeed":
            return block.mapping.scalar(*setting.path[:-1], "device") != "cpu"
        return block.mapping.scalar("use_cpu") is True or (block.kind == "datamodule" and on_host(file))

    VALID = (
        """
        per_device_train_batch_size: 8
        dataloader_pin_memory: true
        """,
        """
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "pin_memory": false}}}
        """,
        """
        per_device_train_batch_size: 8
        use_cpu: true
        dataloader_pin_memory: false
        """,
    )
    INVALID = (
        Invalid("""
            trainer:
              accelerator: gpu
              max_epochs: 20
            data:
              batch_size: 1
              pin_memory: false  # !
              # + pin_memory: true
        """),
        Invalid("""
            per_device_train_batch_size: 8
            dataloader_pin_memory: false  # !
            # + dataloader_pin_memory: true
        """),
        Invalid("""
            {
              "zero_optimization": {
                "stage": 2,
                "offload_optimizer": {
                  "device": "cpu",
                  "pin_memory": false  # !
                  # + "pin_memory": true
                }
              }
            }
        """),
        Invalid("""
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 1
            dataloader_pin_memory: false  # !
            # + dataloader_pin_memory: true
        """),
    )
