"""What a benchmark for a GPU is: one scenario at one or more sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Workload:
    """The code before and after the advice, as text; each side leaves what must be equal in `result`.

    In scope: `torch`, `nn`, `F`, `device` ("cuda", or "cpu" in the tests), `pinned` (copies a tensor into pinned
    memory, where there is a GPU), and the variables of the size.
    """

    setup: str
    before: str
    after: str
    sizes: Mapping[str, Mapping[str, Any]]  # in words -> variables
    small: Mapping[str, Any]  # the variables of the tests
    scope: str = "this operation"
    gain: str = "time"  # what the advice is about: "time" | "memory"
    tolerance: float = 1e-3  # relative and absolute
    needs_cuda: str = ""  # why the CPU cannot run it


# `steps` training steps of a multilayer perceptron. The learning rate is 0: both sides see the same weights.
TRAINING = """
torch.manual_seed(0)
layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
x = torch.randn(batch, width, device=device)
y = torch.randn(batch, width, device=device)

def step(x=x):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
"""
STEPS: Mapping[str, Mapping[str, int]] = {
    "10 steps of 8 layers of 256, batch 64, float32": {"steps": 10, "depth": 8, "width": 256, "batch": 64},
    "5 steps of 12 layers of 2048, batch 1024, float32": {
        "steps": 5,
        "depth": 12,
        "width": 2048,
        "batch": 1024,
    },
}
FEW_STEPS = {"steps": 2, "depth": 2, "width": 8, "batch": 4}
