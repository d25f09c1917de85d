"""What measures are worth where no rule has the figure: published ranges with their sources."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptopt.audit.measures.attention import IN_PART
from ptopt.audit.measures.breaks import BREAKS
from ptopt.audit.values import EntryPoint, State, measure_of
from ptopt.findings import Impact
from ptopt.impact import of_rule

_OF_LANGUAGE = ("transformers", "TRL")  # frameworks of trainings of language models
PINNED_COPIES = "non_blocking, pinned"  # the row `non_blocking`, where the loader pins its batches
_TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_ADAM = re.compile(r"\badamw?(_torch|_hf)?\b", re.I)
_OWN: dict[str, tuple[Impact, ...]] = {
    "compile": (
        Impact(
            "time", 1.21, 1.51, "the training step",
            "163 open-source models on an A100, the mean: 1.21 in float32, 1.51 with mixed precision; less on consumer GPUs, "
            "and nothing where the time goes into loading data",
            "published", "https://pytorch.org/get-started/pytorch-2-x/",
        ),
    ),
    "channels_last": (
        Impact(
            "time", 1.08, 1.35, "training of a convolutional network",
            "with mixed precision on GPUs with tensor cores (V100); 1.22 for ResNet-50",
            "published", "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        ),
    ),
    "tf32": (
        Impact(
            "time", 1.0, 6.9, "float32 matrix products",
            "a product of two 10,240 × 10,240 matrices on a GA100: 0.11 s in float32, 0.016 s with TF32; small products gain less",
            "published", "https://docs.pytorch.org/docs/stable/notes/cuda.html",
        ),
    ),
    "padding": (
        Impact(
            "time", 1.0, 2.0, "the training step",
            "packing with FlashAttention 2 against padded batches; the more the lengths differ, the more",
            "published", "https://huggingface.co/blog/packing-with-FA2",
        ),
    ),
}  # fmt: skip
# Measure -> the rules whose figures hold for it.
_RULES: dict[str, tuple[str, ...]] = {
    "precision": ("full-precision-training",),
    "attention": ("attention-by-hand",),
    "pin_memory": ("loader-without-pinning",),
    "persistent_workers": ("workers-restarted-each-epoch",),
    "non_blocking": ("batch-copy-waits",),
    PINNED_COPIES: ("blocking-copy-from-pinned-loader",),
    "fused_optimizer": ("optimizer-not-fused",),
    "cudnn_benchmark": ("cudnn-autotune-off",),
    "evaluation": ("evaluation-records-graph",),
    "set_to_none": ("zero-grad-keeps-tensors",),
    "accumulation": ("accumulation-syncs-every-micro-batch",),
}


def is_of_other_code(key: str, entries: Iterable[EntryPoint]) -> bool:
    """Are the figures those of code that these scripts are not known to resemble?

    The start of workers was measured where it is nearly all that an epoch does, packing with language models, the fused update with AdamW
    and networks of linear layers, attention where all of it was computed by hand: a convolutional one has few parameters for the work of its step, and SGD little to do for each.
    """
    if key == "fused_optimizer":
        return not all(map(_steps_as_measured, entries))
    if key == "attention":
        return any((row := measure_of(entry, key)) is not None and IN_PART in row.detail for entry in entries)
    if key == "compile":  # of parts: the figures are of whole networks
        return any((row := measure_of(entry, key)) is not None and BREAKS in row.detail for entry in entries)
    if key == "padding":
        return any(entry.framework not in _OF_LANGUAGE for entry in entries)
    return key == "persistent_workers"


def _steps_as_measured(entry: EntryPoint) -> bool:
    row, convolves = measure_of(entry, "fused_optimizer"), measure_of(entry, "channels_last")
    adam = row is not None and _ADAM.search(row.detail) is not None
    return adam and convolves is not None and convolves.state is State.NOT_APPLICABLE


def worth(key: str) -> tuple[Impact, ...]:
    """The figures for a measure: published ones and those measured on a GPU; empty where nobody has any."""
    of_rules = [
        impact
        for rule in _RULES.get(key, ())
        for impact in of_rule(rule)
        if (impact.provenance == "published" or impact.device == "cuda") and "inference" not in impact.scope
    ]
    every = [*_OWN.get(key, ()), *of_rules]
    return tuple(
        sorted(every, key=lambda impact: "training" not in impact.scope)[:3]
    )  # what the user waits for first
