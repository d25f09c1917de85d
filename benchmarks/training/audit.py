"""Which switches of a configuration are off and would help on this machine, or are on and cost.

    python -m benchmarks.training audit CONFIG [KEY=VALUE ...] [--device cpu|cuda]

Sorted by severity, with impact, risk, effort and the phase of a plan. The impact is what `benchmarks.training` measured
here, or on a machine of the same kind; where nothing was measured it says so.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.training.results import RECIPE, Result, clock_of, noise, ratio
from benchmarks.training.variants import Hardware

if TYPE_CHECKING:
    from training.recipes.settings import Settings

SEVERITIES = ("critical", "moderate", "low", "good")
PHASES = {
    1: "one line of the configuration",
    2: "something to install, or memory to watch",
    3: "to be tried with a short run first",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A switch, when it is set right for this hardware, and what to do if not."""

    key: str  # the change that fixes it
    good: str  # reported when it is set right
    severity: str
    advice: str
    risk: str
    effort: str
    phase: int
    applies: Callable[[Settings, Hardware], bool]
    right: Callable[[Settings, Hardware], bool]
    variant: str = ""  # what measures the switch
    against: str = "labelled"


def _gpu(_: Settings, hardware: Hardware) -> bool:
    return hardware.device == "cuda"


def _always(_: Settings, __: Hardware) -> bool:
    return True


def _modern(_: Settings, hardware: Hardware) -> bool:
    return hardware.device == "cuda" and (hardware.capability or (0, 0)) >= (8, 0)


CHECKS = (
    Check(
        "data.packing=true",
        "no padding", "critical", "rows are padded: the padding is computed and thrown away",
        "none: attention stops at each row's start", "none", 1,
        _always, lambda s, h: s.data.packing or (h.device == "cpu" and s.batch.size == 1), "packing",
    ),
    Check(
        "precision=bf16", "bf16", "critical", "fp32 or fp16 where the hardware multiplies bf16",
        "small: the loss is kept in fp32", "none", 1,
        lambda s, h: h.fast_bf16, lambda s, h: s.precision == "bf16", "bf16",
    ),
    Check(
        "precision=fp32", "fp32, as this hardware does not multiply bf16", "moderate",
        "bf16 or fp16 is emulated by this hardware", "none", "none", 1,
        lambda s, h: not h.fast_bf16 and h.device == "cpu", lambda s, h: s.precision == "fp32",
    ),
    Check(
        "torchrun", "", "critical", "one of several GPUs is used: start with torchrun --nproc-per-node=gpu",
        "none: divide batch.accumulation by the number of GPUs", "none", 1,
        lambda s, h: h.gpus > 1, lambda s, h: False,
    ),
    Check(
        "model.attention=auto", "attention is chosen by what the GPU can do", "critical",
        "eager attention keeps the whole matrix of scores", "none", "none", 1,
        _always, lambda s, h: s.model.attention != "eager", "labelled", "eager",
    ),
    Check(
        "pip install kernels", "flash attention is installed", "moderate",
        "neither flash_attn nor kernels is installed: attention falls back to sdpa", "its wheel must fit torch and CUDA",
        "minutes", 2,
        _modern, lambda s, h: bool(h.packages & {"flash_attn", "kernels"}), "recipe-flash", RECIPE,
    ),
    Check(
        "optimizer.name=adamw_torch_fused", "fused or 8-bit optimizer", "moderate",
        "the optimizer steps tensor by tensor", "none", "none", 1,
        _always, lambda s, h: s.optimizer.name != "adamw_torch", "fused",
    ),
    Check(
        "model.four_bit=false", "weights are not quantised where memory is no concern", "moderate",
        "4-bit weights are unpacked in every pass; a CPU has the memory for bf16", "none", "none", 1,
        lambda s, h: h.device == "cpu", lambda s, h: not s.model.four_bit, RECIPE, "recipe-qlora",
    ),
    Check(
        "activation_checkpointing=false", "no activation is computed twice", "moderate",
        "activation checkpointing computes every layer's forward pass twice; only worth it when memory is short",
        "more memory", "none", 2,
        lambda s, h: h.device == "cpu", lambda s, h: not s.activation_checkpointing, RECIPE, "recipe-checkpointing",
    ),
    Check(
        "compile=default", "compiled", "moderate", "torch.compile is off", "minutes before the first step", "a short run", 3,
        _gpu, lambda s, h: s.compile != "off", "recipe-compile", RECIPE,
    ),
    Check(
        "compile=off", "not compiled, as compiling on a CPU takes minutes", "moderate",
        "torch.compile on a CPU takes minutes before the first step", "none", "none", 1,
        lambda s, h: h.device == "cpu", lambda s, h: s.compile == "off",
    ),
    Check(
        "model.kernels=true", "fused layer kernels", "moderate", "layers run kernel by kernel", "kernels come from the hub",
        "a short run", 3,
        _gpu, lambda s, h: s.model.kernels, "recipe-kernels", RECIPE,
    ),
    Check(
        "data.workers=2", "batches are loaded beside the training", "low",
        "batches are made while the GPU waits", "none", "none", 1,
        lambda s, h: h.device == "cuda" and h.cores > 2, lambda s, h: s.data.workers > 0, "workers",
    ),
    Check(
        "data.workers=0", "no loader process takes a core from the training", "low",
        "loader processes compete with the training for few cores", "none", "none", 1,
        lambda s, h: h.device == "cpu" and h.cores <= 2, lambda s, h: s.data.workers == 0, "labelled", "workers",
    ),
    Check(
        "data.pin=true", "pinned batches", "low", "batches are copied from pageable memory", "none", "none", 1,
        _gpu, lambda s, h: s.data.pin,
    ),
    Check(
        "data.processes", "tokenised in parallel", "low", "rows are tokenised by one process", "none", "none", 1,
        lambda s, h: h.cores > 2, lambda s, h: s.data.processes > 1,
    ),
    Check(
        "batch.auto=true", "out of memory halves the batch", "low", "out of memory ends the run", "none", "none", 1,
        _gpu, lambda s, h: s.batch.auto,
    ),
    Check(
        "lora.dropout=0", "no dropout to draw", "moderate", "a CPU spends long on drawing the masks of LoRA's dropout",
        "on little data the rows may be learned by heart", "none", 2,
        lambda s, h: h.device == "cpu", lambda s, h: s.lora.dropout == 0, "no-dropout",
    ),
    Check(
        "lora.last=N", "LoRA in the upper layers only", "low", "the backward pass runs through all layers",
        "fewer weights to learn with: compare the loss", "a short run", 3,
        lambda s, h: h.device == "cpu", lambda s, h: s.lora.last is not None, "half",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recommendation:
    severity: str
    check: Check
    impact: str


def audit(settings: Settings, hardware: Hardware, results: Sequence[Result]) -> list[Recommendation]:
    """Remarks in the order of severity, then of phase; what is set right comes last, as `good`."""
    remarks = [
        Recommendation("good" if check.right(settings, hardware) else check.severity, check, impact(check, hardware, results))
        for check in CHECKS
        if check.applies(settings, hardware)
    ]  # fmt: skip
    return sorted(remarks, key=lambda r: (SEVERITIES.index(r.severity), r.check.phase))


def impact(check: Check, hardware: Hardware, results: Sequence[Result]) -> str:
    """What the switch gave where it was measured, in words."""
    for result in results:
        if result.device != hardware.device or not check.variant:
            continue
        gain = ratio(result, check.variant, clock_of(result), check.against)
        if math.isnan(gain):
            continue
        spread = noise(result, clock_of(result))
        within = not math.isnan(spread) and 1 / spread < gain < spread
        words = "no difference beyond noise" if within else f"{gain:.2f} x tokens/s"
        peaks = [max(m.peak_mb for m in result.runs(name)) for name in (check.variant, check.against)]
        return f"{words}, {peaks[0] / peaks[1]:.2f} x memory ({result.machine}, {result.date})"
    return "not measured on such a machine"


def report(remarks: Sequence[Recommendation], hardware: Hardware) -> Iterator[str]:
    """The report, as Markdown."""
    where = hardware.name if hardware.device == "cuda" else f"a CPU, {hardware.cores} cores"
    yield f"# Training audit on {where}\n"
    number = 0
    for severity in SEVERITIES[:-1]:
        for remark in (r for r in remarks if r.severity == severity):
            number += 1
            check = remark.check
            yield f"{number}. **{severity}** `{check.key}`: {check.advice}."
            yield f"   Impact: {remark.impact}. Risk: {check.risk}. Effort: {check.effort}. Phase {check.phase}."
    if not number:
        yield "Nothing that would help here is off."
    phases = sorted({r.check.phase for r in remarks if r.severity != "good"})
    if phases:
        yield ""
        for phase in phases:
            keys = ", ".join(
                f"`{r.check.key}`" for r in remarks if r.check.phase == phase and r.severity != "good"
            )
            yield f"Phase {phase} ({PHASES[phase]}): {keys}"
    good = [r.check.good for r in remarks if r.severity == "good"]
    if good:
        yield f"\nAlready good: {'; '.join(good)}."


def stored(folder: Path) -> list[Result]:
    return [Result.from_json(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def main(arguments: Sequence[str]) -> None:
    from training.recipes.settings import SettingsError, find, read

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    options = parser.parse_args(arguments)
    if options.device is None:
        import torch

        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        settings = read(find(options.config), options.changes)
    except SettingsError as error:
        parser.error(str(error))
    hardware = Hardware.here(options.device)
    for line in report(audit(settings, hardware, stored(Path(__file__).parent / "results")), hardware):
        print(line)
