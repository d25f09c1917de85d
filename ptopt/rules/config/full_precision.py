from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.configs.deliberate import is_explained, is_trial
from ptopt.configs.values import Mapping
from ptopt.project.facts import ProjectFacts
from ptopt.rules.base import Fix, Invalid, Safety, Severity
from ptopt.rules.configs import Block, ConfigFile, ConfigProblem, ConfigRule, Entry, replace, shown
from ptopt.rules.shared.precision import lightning_precision

_NO_TRAINING = re.compile(r"infer|eval|test|export|convert|predict|generat|debug", re.I)
_OLD_WIDTH = frozenset({"32", "32-true", "fp32", "float32", "full"})
_OFF = frozenset({"no", "fp32", "float32"})


class FullPrecision(ConfigRule):
    """A configuration trains in 32-bit floating point on a GPU.

    ## What it does
    Finds settings that say so in words: `bf16: false` beside `fp16: false` of Hugging Face trainers and LLaMA-Factory,
    `precision: 32` of a Lightning trainer on a GPU, and `dtype: fp32` of torchtune.

    ## Why it is slow
    Matrix multiplications in 32 bits leave the tensor cores idle, or use them at half the rate with TF32, and activations
    take twice the memory.

    ## When this is wrong
    When the model needs the precision (scientific work, unstable losses), or the GPU is older than Ampere and has no bf16.

    ## Fix safety
    Unsafe: results change in the last digits, and the GPU must support bf16.

    ## Sources
    - [PyTorch: automatic mixed precision](https://docs.pytorch.org/docs/stable/amp.html)
    - [Lightning: N-bit precision](https://lightning.ai/docs/pytorch/stable/common/precision_basic.html)
    """

    id = "PTO013"
    name = "full-precision"
    family = "config"
    severity = Severity.HIGH
    partly: ClassVar[frozenset[str]] = frozenset({"bf16-mixed", "bf16=True", 'precision="bf16"'})
    kinds = frozenset({"transformers", "llamafactory", "lightning", "torchtune"})
    prior = 0.6
    when_wrong = "the model needs 32 bits, or the GPU has no bf16"

    VALID = (
        """
        trainer:
          accelerator: cpu
          max_epochs: 10
          precision: 32
        """,
        """
        per_device_train_batch_size: 8
        bf16: false
        fp16: true
        """,
        """
        per_device_train_batch_size: 8
        bf16: false
        """,
        """
        trainer:
          devices: 1
          max_epochs: 10
          precision: bf16-mixed
        """,
    )
    INVALID = (
        Invalid("""
            trainer:
              accelerator: gpu
              max_epochs: 10
              precision: 32  # !
              # + precision: bf16-mixed
        """),
        Invalid("""
            per_device_train_batch_size: 8
            fp16: false
            bf16: false  # !
            # + bf16: true
        """),
        Invalid("""
            model:
              _component_: torchtune.models.llama3_1.llama3_1_8b
            device: cuda
            dtype: fp32  # !
            # + dtype: bf16
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        if _NO_TRAINING.search(file.path):
            return
        for block in file.blocks:
            found = _entry(block, file.facts)
            if found is None:
                continue
            entry, better = found
            line = file.document.line(entry.value.start)
            if is_explained(file.lines, line) or is_trial(file.path, block.mapping):
                continue
            fix = Fix(
                Safety.UNSAFE,
                (replace(file, entry.value, better),),
                f"the GPU supports {'float16' if better == '16' else 'bf16'} and the model tolerates it",
            )
            yield ConfigProblem(
                entry.key.start,
                entry.value.end,
                f"{shown(file, entry)}: matrix multiplications run in 32 bits, which leaves most of the tensor cores' rate "
                f"unused and doubles the memory of activations. `{better}` is what GPUs from {'Volta' if better == '16' else 'Ampere'} on "
                "are made for.",
                ".".join((*block.path, entry.key.text)),
                fix=fix,
                confidence=0.4 if block.kind == "lightning" else None,  # most who write it there mean it
            )


def _entry(block: Block, facts: ProjectFacts) -> tuple[Entry, str] | None:
    """The setting that says so, and what to write instead."""
    mapping = block.mapping
    if block.kind == "lightning":
        entry = mapping.entry("precision")
        on_gpu = mapping.scalar("accelerator") in ("gpu", "cuda") or _positive(mapping, "gpus")
        if entry is not None and on_gpu and str(mapping.scalar("precision")) in _OLD_WIDTH:
            better = lightning_precision(facts)
            if better == "bf16-mixed" and "gpus" in mapping:
                better = "bf16"  # an argument that Lightning 2, which spells it so, no longer takes
            return (entry, better) if better else None
    elif block.kind == "torchtune":
        entry = mapping.entry("dtype")
        if entry is not None and mapping.scalar("dtype") in _OFF and mapping.scalar("device") != "cpu":
            return entry, "bf16"
    else:
        entry = mapping.entry("bf16")
        off = mapping.scalar("bf16") is False and mapping.scalar("fp16") is False and "fp16" in mapping
        if (
            entry is not None
            and off
            and facts.has("bf16=True")
            and mapping.scalar("use_cpu") is not True
            and not _is_quantised(mapping)
        ):
            return entry, "true"
    return None


def _is_quantised(mapping: Mapping) -> bool:
    return mapping.scalar("pure_bf16") is True or mapping.scalar("fp8") is True


def _positive(mapping: Mapping, key: str) -> bool:
    value = mapping.scalar(key)
    return isinstance(value, int) and not isinstance(value, bool) and value != 0
