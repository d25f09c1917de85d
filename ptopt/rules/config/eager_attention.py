from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule

_EAGER = Setting(
    ("attn_implementation",),
    ("eager",),
    "{value}: attention builds the whole matrix of scores in memory, which grows with the square of the length. "
    "`sdpa` computes the same in blocks.",
    "sdpa",
    "the model supports SDPA and nothing reads its attention weights",
)
_NEEDS_IT = re.compile(r"gemma|gpt-?oss", re.I)  # caps of scores, attention sinks
_KEYS = (
    "flash_attention",
    "sdp_attention",
    "xformers_attention",
    "flex_attention",
    "s2_attention",
    "sage_attention",
)


class EagerAttentionConfigured(SettingRule):
    """A configuration selects the attention that builds the whole matrix of scores.

    ## What it does
    Finds `attn_implementation: eager` beside the settings of a Hugging Face trainer and in axolotl, `eager_attention: true`
    of axolotl, and `flash_attn: disabled` of LLaMA-Factory.

    ## Why it is slow
    Scores of length x length are written to memory, read for the softmax, written and read again. Fused kernels keep a
    block of them on the chip.

    ## When this is wrong
    When the model needs it (Gemma 2 caps its scores), attention weights are read, or the accelerator has no fused kernel.

    ## Fix safety
    Unsafe: not each model supports SDPA, and attention weights are no longer returned.

    ## Sources
    - [transformers: attention back ends](https://huggingface.co/docs/transformers/attention_interface)
    """

    id = "PTO014"
    name = "eager-attention-configured"
    family = "config"
    since: ClassVar[Mapping[str, str]] = {"transformers": "4.36"}
    kinds = frozenset({"transformers", "axolotl", "llamafactory"})
    prior = 0.6
    when_wrong = "the model needs eager attention, as Gemma 2 does, or attention weights are read"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        "transformers": (_EAGER,),
        "axolotl": (
            _EAGER,
            Setting(
                ("eager_attention",),
                (True,),
                "{value}: attention builds the whole matrix of scores in memory.",
            ),
        ),
        "llamafactory": (
            Setting(
                ("flash_attn",),
                ("disabled",),
                "{value} selects eager attention, which builds the whole matrix of scores in memory. `auto` takes SDPA "
                "where the model supports it.",
                "auto",
                "nothing reads the attention weights",
            ),
        ),
    }

    VALID = (
        """
        per_device_train_batch_size: 8
        attn_implementation: sdpa
        """,
        """
        per_device_train_batch_size: 8
        model_name_or_path: google/gemma-2-9b
        attn_implementation: eager
        """,
        """
        model_name_or_path: some/model
        stage: sft
        finetuning_type: lora
        flash_attn: fa2
        """,
    )
    INVALID = (
        Invalid("""
            per_device_train_batch_size: 8
            attn_implementation: eager  # !
            # + attn_implementation: sdpa
        """),
        Invalid("""
            model_name_or_path: some/model
            stage: sft
            finetuning_type: lora
            flash_attn: disabled  # !
            # + flash_attn: auto
        """),
        Invalid("""
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 1
            eager_attention: true  # !
        """),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        if any(block.mapping.scalar(key) is True for key in _KEYS):
            return True
        names = [
            str(block.mapping.scalar(key) or "") for key in ("base_model", "model_name_or_path", "model_name")
        ]
        return any(map(_NEEDS_IT.search, names)) or "ascend" in file.path
