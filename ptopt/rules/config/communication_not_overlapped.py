from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule


class CommunicationNotOverlapped(SettingRule):
    """DeepSpeed computes nothing while parameters or gradients travel.

    ## What it does
    Finds `"overlap_comm": false` of ZeRO stage 3, where DeepSpeed overlaps by default, and
    `"contiguous_gradients": false` of stages 2 and 3.

    ## Why it is slow
    Stage 3 gathers the parameters of each layer and reduces its gradients in buckets. With overlap this happens on a stream of
    its own, beside computation; without, computation waits for each bucket. Gradients that are not contiguous are copied
    and sent in fragments.

    ## When this is wrong
    When memory is too short for the buckets that overlap needs (4.5 times their size), there is one GPU, or overlap was switched
    off for correctness: DeepSpeed had errors with it for years. Off by default: of seven findings that readers saw, none was useful.

    ## Fix safety
    Unsafe: it needs memory for the buckets.

    ## Sources
    - [DeepSpeed: ZeRO options](https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training)
    """

    id = "PTO017"
    name = "communication-not-overlapped"
    family = "config"
    kinds = frozenset({"deepspeed"})
    prior = 0.45
    default = False  # nearly all who write it had trouble with overlap
    when_wrong = "memory is too short for the buckets, there is one GPU, or overlap caused errors"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        "deepspeed": (
            Setting(
                ("zero_optimization", "overlap_comm"),
                (False,),
                "{value}: computation waits while parameters are gathered and gradients reduced, instead of going on beside it.",
                "true",
                "there is memory for the buckets and more than one GPU",
            ),
            Setting(
                ("zero_optimization", "contiguous_gradients"),
                (False,),
                "{value}: gradients stay scattered over memory, which fragments it and slows their reduction.",
                "true",
                "there is memory for a buffer of gradients",
                0.4,
            ),
        )
    }

    VALID = (
        """
        {"zero_optimization": {"stage": 2, "overlap_comm": true}}
        """,
        """
        {"zero_optimization": {"stage": 2, "overlap_comm": false}}
        """,
        """
        {"zero_optimization": {"stage": 3}}
        """,
    )
    INVALID = (
        Invalid("""
            {
              "zero_optimization": {
                "stage": 3,
                "overlap_comm": false  # !
                # + "overlap_comm": true
              }
            }
        """),
        Invalid("""
            {
              "zero_optimization": {
                "stage": 3,
                "overlap_comm": true,
                "contiguous_gradients": false  # !
                # + "contiguous_gradients": true
              }
            }
        """),
        Invalid("""
            zero_optimization:
              stage: 3
              overlap_comm: false  # !
              # + overlap_comm: true
        """),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        if "autotuning" in file.path:  # templates, of which the tuner changes the values
            return True
        stage = block.mapping.scalar("zero_optimization", "stage")
        least = 3 if setting.path[-1] == "overlap_comm" else 2
        return not isinstance(stage, int) or not least <= stage <= 3
