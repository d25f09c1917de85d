"""The variants that are measured: the naive recipe, each switch of the product's recipe alone, and combinations.

A variant of the recipe is nothing but changes to its settings, written as on the command line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.training.results import NAIVE, RECIPE, Device

if TYPE_CHECKING:
    from training.recipes.settings import Settings


@dataclass(frozen=True, slots=True)
class Hardware:
    """What this machine has, as far as a switch depends on it."""

    device: Device
    name: str
    gpus: int
    capability: tuple[int, int] | None  # of the GPU
    fast_bf16: bool
    cores: int
    packages: frozenset[str]  # of those that a switch needs

    @classmethod
    def here(cls, device: Device) -> Hardware:
        import torch

        cuda = device == "cuda"
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        wanted = ("bitsandbytes", "flash_attn", "kernels", "liger_kernel")
        return cls(
            device=device,
            name=torch.cuda.get_device_name() if cuda else "CPU",
            gpus=torch.cuda.device_count() if cuda else 0,
            capability=torch.cuda.get_device_capability() if cuda else None,
            fast_bf16=torch.cuda.is_bf16_supported()
            if cuda
            else "avx512_bf16" in flags or "amx_bf16" in flags,
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            packages=frozenset(name for name in wanted if find_spec(name)),
        )


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    title: str
    changes: tuple[str, ...] = ()
    alone: bool = False  # changes are made to the recipe with every switch off, not to the configuration
    cuda: str = ""  # why it needs a GPU; empty: it does not
    package: str = ""
    quick: bool = True  # part of the default run on a CPU


# The product's recipe with every switch off, as in most tutorials. What it cannot put off, the loss over labelled
# positions only, is what this variant measures against the naive recipe that pads to the longest row of a batch.
OFF = (
    "precision=fp32", "lora.dropout=0.1", "lora.last=null", "data.packing=false", "data.order=shuffled", "data.workers=0",
    "optimizer.name=adamw_torch", "model.attention=sdpa", "model.four_bit=false", "model.kernels=false", "compile='off'",
    "activation_checkpointing=false", "cpu_offload=none", "batch=several",
)  # fmt: skip
STEPS = 6  # of the optimizer at least: a loss after fewer says nothing
COMPILE = "minutes of compiling for a few per cent on a CPU"
LIGER = "Liger's kernels are written in Triton"
FLASH = "flash attention is for GPUs"

VARIANTS = (
    Variant(NAIVE, "naive: padded to a fixed length"),
    Variant(RECIPE, "recipe"),
    Variant("naive-dynamic", "naive: padded to the batch's longest row"),
    Variant("labelled", "loss at labelled positions", alone=True),
    Variant("bf16", "+ bf16", ("precision=bf16",), alone=True),
    Variant("packing", "+ packing", ("data.packing=true", "batch=packed"), alone=True),
    Variant("by-length", "+ rows of like length", ("data.order=by-length",), alone=True, quick=False),
    Variant("one-row", "+ one row at once", ("batch=one",), alone=True),
    Variant("no-dropout", "+ no dropout", ("lora.dropout=0",), alone=True),
    Variant("half", "+ LoRA in the upper layers only", ("lora.last=15",), alone=True),
    Variant("fused", "+ fused optimizer", ("optimizer.name=adamw_torch_fused",), alone=True),
    Variant("adamw-8bit", "+ 8-bit optimizer", ("optimizer.name=adamw_8bit",), alone=True, package="bitsandbytes"),
    Variant("checkpointing", "+ activation checkpointing", ("activation_checkpointing=true",), alone=True, quick=False),
    Variant("workers", "+ 2 loader workers", ("data.workers=2",), alone=True, quick=False),
    Variant("eager", "+ eager attention", ("model.attention=eager",), alone=True, quick=False),
    Variant("flash", "+ flash attention 2, bf16", ("model.attention=flash_attention_2", "precision=bf16"), alone=True,
            cuda=FLASH),
    Variant("qlora", "+ QLoRA (NF4)", ("model.four_bit=true",), alone=True, package="bitsandbytes", quick=False),
    Variant("offload", "+ activations kept in CPU memory", ("cpu_offload=activations",), alone=True,
            cuda="there is no GPU memory to spare"),
    Variant("compile", "+ torch.compile", ("compile=default",), alone=True, cuda=COMPILE),
    Variant("kernels", "+ fused layer kernels", ("model.kernels=true",), alone=True, cuda=LIGER),
    Variant("packing-bf16", "+ packing, bf16", ("data.packing=true", "precision=bf16", "batch=packed"), alone=True,
            quick=False),
    Variant("recipe-packing", "recipe + packing", ("data.packing=true", "batch=packed")),
    Variant("recipe-by-length", "recipe, padded rows of like length",
            ("data.packing=false", "data.order=by-length", "batch=several")),
    Variant("recipe-halved", "recipe, half the batch, twice the accumulation", ("batch=halved",)),
    Variant("recipe-all-layers", "recipe, LoRA in all layers", ("lora.last=null",)),
    Variant("recipe-checkpointing", "recipe + activation checkpointing", ("activation_checkpointing=true",)),
    Variant("recipe-qlora", "recipe + QLoRA (NF4)", ("model.four_bit=true",), package="bitsandbytes"),
    Variant("recipe-qlora-8bit", "recipe + QLoRA + paged 8-bit optimizer",
            ("model.four_bit=true", "optimizer.name=paged_adamw_8bit"), package="bitsandbytes", quick=False),
    Variant("recipe-workers", "recipe + 2 loader workers", ("data.workers=2",), quick=False),
    Variant("recipe-flash", "recipe + flash attention 2", ("model.attention=flash_attention_2",), cuda=FLASH),
    Variant("recipe-no-compile", "recipe, not compiled", ("compile='off'",)),
    Variant("recipe-compile", "recipe + torch.compile", ("compile=default",), cuda=COMPILE),
    Variant("recipe-kernels", "recipe + fused layer kernels", ("model.kernels=true",), cuda=LIGER),
    Variant("recipe-all", "recipe + compile, kernels, 2 workers",
            ("compile=default", "model.kernels=true", "data.workers=2"), cuda=COMPILE),
)  # fmt: skip


def why_not(variant: Variant, hardware: Hardware) -> str:
    """Why a variant cannot run here; empty when it can."""
    if variant.cuda and hardware.device != "cuda":
        return f"needs a GPU: {variant.cuda}"
    if variant.package and variant.package not in hardware.packages:
        return f"{variant.package} is not installed"
    if variant.name.endswith("flash") and not hardware.packages & {"flash_attn", "kernels"}:
        return "neither flash_attn nor kernels is installed"
    if variant.name.endswith("flash") and (hardware.capability or (0, 0)) < (8, 0):
        return "needs a GPU of capability 8.0 or newer"
    return ""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Equal rows and about equal real tokens in every optimizer step, so that losses compare."""

    own: tuple[int, int]  # of the configuration: rows (packed, if it packs) at once, and how often a step
    rows: int  # a step, not packed
    several: int  # of these at once, where the configuration has no say
    pad_to: int  # tokens of a row in the naive recipe
    pack_to: int  # tokens of a packed row
    packed: int  # packed rows a step

    @classmethod
    def of(cls, lengths: Sequence[int], settings: Settings, several: int) -> Geometry:
        """A step is what the configuration makes it, or less where there would be fewer than STEPS of them.

        Padding to more than rows can have would favour the recipe.
        """
        data, batch = settings.data, settings.batch
        mean = sum(lengths) / len(lengths)
        pack_to = data.pack_to or (1 if data.packing else 2) * data.max_tokens
        units = sum(lengths) / pack_to if data.packing else len(lengths)
        own = (batch.size, min(batch.accumulation, max(1, int(units / batch.size / STEPS))))
        total = own[0] * own[1]
        rows = max(1, round(total * pack_to / mean)) if data.packing else total
        several = min(several, rows)
        rows = several * max(1, round(rows / several))
        packed = total if data.packing else max(1, round(rows * mean / pack_to))
        longest = 1 << (max(lengths) - 1).bit_length()
        return cls(own, rows, several, min(longest, data.max_tokens), pack_to, packed)

    def changes(self, how: str) -> tuple[str, ...]:
        """The settings for `batch=HOW`; empty: what the configuration says."""
        size, parts = {
            "": self.own,
            "one": (1, self.rows),
            "several": (self.several, self.rows // self.several),
            "packed": (1, self.packed),
            "halved": (max(1, self.own[0] // 2), self.own[1] * self.own[0] // max(1, self.own[0] // 2)),
        }[how]
        return (
            f"batch.size={size}",
            f"batch.accumulation={parts}",
            "batch.auto=false",
            f"data.pack_to={self.pack_to}",
        )
