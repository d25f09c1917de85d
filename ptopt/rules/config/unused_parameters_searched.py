from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid
from ptopt.rules.configs import Setting, SettingRule, Severity

_WHY = (
    "{value}: after each forward pass DDP walks the whole graph for parameters without a gradient. That costs time in each "
    "step, and is needed only where some parameters take no part in some of them."
)
_TRAINER = (
    Setting(
        ("ddp_find_unused_parameters",), (True,), _WHY, "false", "each parameter takes part in each step"
    ),
)


class UnusedParametersSearched(SettingRule):
    """DDP looks for unused parameters in each step.

    ## What it does
    Finds `ddp_find_unused_parameters: true` of Hugging Face trainers, axolotl and LLaMA-Factory, and the strategy
    `ddp_find_unused_parameters_true` of a Lightning trainer.

    ## Why it is slow
    The graph is traversed after each forward pass, and the reduction of gradients waits for what is found.

    ## When this is wrong
    When some parameters take no part in some steps: mixtures of experts, several heads, adversarial training.

    ## Example
    ```yaml
    per_device_train_batch_size: 8
    ddp_find_unused_parameters: true
    ```

    ## Use instead
    ```yaml
    per_device_train_batch_size: 8
    ddp_find_unused_parameters: false
    ```

    ## Fix safety
    Unsafe: a step in which a parameter takes no part then fails.

    ## Sources
    - [PyTorch: DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)
    """

    id = "PTO020"
    name = "unused-parameters-searched"
    family = "config"
    severity = Severity.LOW
    kinds = frozenset({"transformers", "axolotl", "llamafactory", "lightning"})
    prior = 0.5
    when_wrong = "some parameters take no part in some steps"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        **dict.fromkeys(("transformers", "axolotl", "llamafactory"), _TRAINER),
        "lightning": (
            Setting(
                ("strategy",),
                ("ddp_find_unused_parameters_true",),
                _WHY,
                "ddp",
                "each parameter takes part in each step",
            ),
        ),
    }

    VALID = (
        """
        per_device_train_batch_size: 8
        ddp_find_unused_parameters: false
        """,
        """
        trainer:
          max_epochs: 2
          devices: 4
          strategy: ddp
        """,
        """
        ddp_find_unused_parameters: true
        """,
    )
    INVALID = (
        Invalid(
            """
            per_device_train_batch_size: 8
            ddp_find_unused_parameters: true  # !
            """,
            """
            per_device_train_batch_size: 8
            ddp_find_unused_parameters: false
            """,
        ),
        Invalid(
            """
            trainer:
              max_epochs: 2
              devices: 4
              strategy: ddp_find_unused_parameters_true  # !
            """,
            """
            trainer:
              max_epochs: 2
              devices: 4
              strategy: ddp
            """,
        ),
        Invalid(
            """
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 1
            ddp_find_unused_parameters: true  # !
            """,
            """
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 1
            ddp_find_unused_parameters: false
            """,
        ),
    )
