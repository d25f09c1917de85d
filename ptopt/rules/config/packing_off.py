from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from ptopt.configs.deliberate import is_trial
from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Scalar, Setting, SettingRule, Severity

_NOT_PLAIN_TEXT = ("rl", "processor_type", "reward_model", "process_reward_model")
# Their layers keep a state from one example to the next, or they see images.
_NO_PACKING = re.compile(
    r"mamba|jamba|falcon-?h|rwkv|zamba|recurrent|granite-?4|nemotron-?h|vision|-vl|llava|pixtral", re.I
)
_WHY = (
    "{value}: each example is padded to the longest of its batch, so much of the computation is on padding where lengths "
    "differ. Packing fills each row with several examples."
)
_ASSUMED = "rows with several examples suit the loss, and the number of steps changes"


class PackingOff(SettingRule):
    """A configuration of supervised fine-tuning switches packing off.

    ## What it does
    Finds `sample_packing: false` of axolotl (supervised training on text) and `packed: False` of a torchtune dataset.

    ## Why it is slow
    Without packing each example is padded to the longest of its batch. Instruction data has many short examples and a few
    long ones, so that most of a batch may be padding.

    ## When this is wrong
    When examples are about equally long, or the model or loss cannot keep packed examples apart.

    ## Fix safety
    Unsafe: a batch holds more examples, so that the number of steps and the learning rate that suits them change.

    ## Sources
    - [axolotl: multipack](https://docs.axolotl.ai/docs/multipack.html)
    - [Hugging Face: packing with Flash Attention 2](https://huggingface.co/blog/packing-with-FA2)
    """

    id = "PTO015"
    name = "packing-off"
    family = "config"
    severity = Severity.HIGH
    kinds = frozenset({"axolotl", "torchtune"})
    prior = 0.6
    when_wrong = "examples are about equally long, or the model cannot keep packed examples apart"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        "axolotl": (Setting(("sample_packing",), (False,), _WHY, "true", _ASSUMED),),
        "torchtune": (Setting(("dataset", "packed"), (False,), _WHY),),
    }

    VALID = (
        """
        base_model: some/model
        rl: dpo
        datasets:
          - path: some/data
        micro_batch_size: 4
        sample_packing: false
        """,
        """
        base_model: some/vision-model
        processor_type: AutoProcessor
        datasets:
          - path: some/data
        micro_batch_size: 4
        sample_packing: false
        """,
        """
        base_model: some/model
        datasets:
          - path: some/data
        micro_batch_size: 4
        sample_packing: true
        """,
    )
    INVALID = (
        Invalid("""
            base_model: some/model
            datasets:
              - path: some/data
            micro_batch_size: 4
            sequence_len: 4096
            sample_packing: false  # !
            # + sample_packing: true
        """),
        Invalid("""
            tokenizer:
              _component_: torchtune.models.llama3.llama3_tokenizer
              max_seq_len: 8192
            dataset:
              _component_: torchtune.datasets.alpaca_dataset
              packed: False  # !
        """),
        Invalid("""
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 2
            sample_packing: no  # !
            # + sample_packing: true
        """),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        mapping = block.mapping
        if 1 in (mapping.scalar("micro_batch_size"), mapping.scalar("batch_size")):
            return True  # nothing is padded
        if is_trial(file.path, mapping):
            return True
        if block.kind == "torchtune":  # a packed dataset needs a length
            model = str(mapping.scalar("model", "_component_") or "")
            return mapping.scalar("tokenizer", "max_seq_len") is None or "vision" in model
        plugins = " ".join(item.text for item in mapping.sequence("plugins") if isinstance(item, Scalar))
        unfit = _NO_PACKING.search(str(mapping.scalar("base_model") or ""))
        return (
            any(mapping.scalar(key) for key in _NOT_PLAIN_TEXT) or "diffusion" in plugins or unfit is not None
        )
