"""Which attention implementation a model runs with: the fastest that works on this machine.

The order is a pure function of the hardware and the installed packages; each choice is then tried, forward and backward, on a tiny model
before it is used. Where the best is not there the reason is logged. `PTOPT_ATTENTION` overrides.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

ENVIRONMENT = "PTOPT_ATTENTION"
KERNELS = (
    "kernels-community/flash-attn2"  # what the package `kernels` fetches from the hub, or has in its cache
)
KNOWN = (
    "sdpa",
    "eager",
    "flex_attention",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    KERNELS,
)
_DISTRIBUTIONS = ("flash-attn", "flash-attn-3", "flash-attn-4", "kernels")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The inputs of the choice."""

    capability: tuple[int, int] | None  # of the CUDA device; None without one
    half: bool  # the model computes in fp16 or bf16
    installed: frozenset[str]  # of the distributions above


@dataclass(frozen=True, slots=True)
class Choice:
    """A value for `attn_implementation`, and why."""

    implementation: str
    reason: str


def candidates(found: Capabilities) -> list[Choice]:
    """Best first; the last always works."""
    if found.capability is None:
        return [Choice("sdpa", "no CUDA device")]
    if not found.half:
        return [Choice("sdpa", "flash attention needs fp16 or bf16")]
    version = "{}.{}".format(*found.capability)
    if found.capability < (8, 0):
        return [Choice("sdpa", f"flash attention needs capability 8.0, this device has {version}")]
    choices = []
    if found.capability[0] == 10 and "flash-attn-4" in found.installed:
        choices.append(Choice("flash_attention_4", f"flash-attn-4 is installed, capability {version}"))
    if found.capability[0] == 9 and "flash-attn-3" in found.installed:
        choices.append(Choice("flash_attention_3", f"flash-attn-3 is installed, capability {version}"))
    if "flash-attn" in found.installed:
        choices.append(Choice("flash_attention_2", f"flash-attn is installed, capability {version}"))
    elif "kernels" in found.installed:
        choices.append(Choice(KERNELS, f"through the package kernels, capability {version}"))
    missing = (
        "no flash attention that works is installed"
        if choices
        else "flash-attn and kernels are not installed"
    )
    return [*choices, Choice("sdpa", missing)]


def choose(found: Capabilities, works: Callable[[str], str | None], override: str | None = None) -> Choice:
    """The first candidate that works. `works` tells what is wrong with one, or None.

    Raises ValueError for an override that is unknown or does not work here.
    """
    if override:
        if override not in KNOWN:
            raise ValueError(f"unknown attention {override!r}: give one of {', '.join(KNOWN)}")
        if wrong := works(override):
            raise ValueError(f"attention {override!r} was requested but does not work here: {wrong}")
        return Choice(override, "requested")
    *fast, last = candidates(found)
    for choice in fast:
        wrong = works(choice.implementation)
        if wrong is None:
            return choice
        log.warning("attention %s does not work here: %s", choice.implementation, wrong)
    return last


def select(device: torch.device, dtype: torch.dtype, override: str | None = None) -> Choice:
    """The attention for a model on this device. Raises ValueError as `choose` does."""

    def works(implementation: str) -> str | None:
        return probe(implementation, device, dtype)

    choice = choose(capabilities(device, dtype), works, override or os.environ.get(ENVIRONMENT) or None)
    log.info("attention: %s (%s)", choice.implementation, choice.reason)
    return choice


def capabilities(device: torch.device, dtype: torch.dtype) -> Capabilities:
    import torch

    cuda = device.type == "cuda" and torch.version.hip is None
    return Capabilities(
        capability=torch.cuda.get_device_capability(device) if cuda else None,
        half=dtype in (torch.float16, torch.bfloat16),
        installed=frozenset(name for name in _DISTRIBUTIONS if _is_installed(name)),
    )


def probe(implementation: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Forward and backward of one tiny layer, held against plain attention: what is wrong, or None."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def run(implementation: str) -> list[torch.Tensor]:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(0)
            config = LlamaConfig(
                vocab_size=64, hidden_size=128, intermediate_size=64, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, attn_implementation=implementation,
            )  # fmt: skip
            model = LlamaForCausalLM(config).to(device=device, dtype=dtype)
        logits = model(torch.arange(32, device=device)[None], use_cache=False).logits.float()
        logits.square().mean().backward()
        return [logits.detach(), *(p.grad.float() for p in model.parameters() if p.grad is not None)]

    try:
        for here, plain in zip(run(implementation), run("eager"), strict=True):
            if not bool(torch.isfinite(here).all()):
                return "it gives numbers that are not finite"
            worst = float((here - plain).abs().max() / plain.abs().max())
            if worst > 0.05:
                return f"it differs from plain attention by {worst:.0%}"
    except Exception as error:  # a missing package, an unsupported device, a kernel that cannot be fetched
        why = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {why:.200}"
    return None


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
