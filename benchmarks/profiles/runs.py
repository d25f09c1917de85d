"""Small real runs on the CPU, recorded with torch.profiler: five ordinary ones, and two with a seeded bottleneck."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 6


class Samples(Dataset[Any]):  # type: ignore[misc]
    """Random samples; each takes `seconds` to make, as a slow disk would."""

    def __init__(self, shape: tuple[int, ...], classes: int, seconds: float = 0.0) -> None:
        self._x = torch.randn(256, *shape)
        self._y = torch.randint(classes, (256,))
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._seconds:
            time.sleep(self._seconds)
        return self._x[index], self._y[index]


class Encoder(nn.Module):  # type: ignore[misc]
    """A small transformer over sequences of vectors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))


class Chatty(nn.Module):  # type: ignore[misc]
    """Layers with Python between the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            busy_python(3_000)
        return x


def busy_python(number: int) -> int:
    """Work of the interpreter alone."""
    total = 0
    for index in range(number):
        total += index * index
    return total


def mlp() -> tuple[nn.Module, DataLoader[Any]]:
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, DataLoader(Samples((128,), 10), batch_size=32)


def cnn() -> tuple[nn.Module, DataLoader[Any]]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return model, DataLoader(Samples((3, 32, 32), 10), batch_size=16)


def transformer() -> tuple[nn.Module, DataLoader[Any]]:
    return Encoder(), DataLoader(Samples((32, 64), 10), batch_size=16)


def slow_loader() -> tuple[nn.Module, DataLoader[Any]]:
    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)), DataLoader(
        Samples((128,), 10, seconds=0.0005), batch_size=16
    )


def large_optimizer() -> tuple[nn.Module, DataLoader[Any]]:
    return nn.Sequential(nn.Linear(16, 40_000), nn.ReLU(), nn.Linear(40_000, 10)), DataLoader(
        Samples((16,), 10), batch_size=1
    )


def chatty() -> tuple[nn.Module, DataLoader[Any]]:
    return Chatty(), DataLoader(Samples((32,), 10), batch_size=4)


ORDINARY: dict[str, Callable[[], tuple[nn.Module, DataLoader[Any]]]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "loader-bound": slow_loader,
    "optimizer-heavy": large_optimizer,
}
SEEDED = {"data": slow_loader, "host": chatty}


def record(
    make: Callable[[], tuple[nn.Module, DataLoader[Any]]], trace: Path, *, stacks: bool = False
) -> Any:
    """Trains for some steps, writes the trace, and returns the profiler."""
    model, loader = make()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        one_thread(),
        torch.profiler.profile(activities=activities, schedule=schedule, with_stack=stacks) as profiler,
    ):
        train(model, loader, optimizer, profiler)
    profiler.export_chrome_trace(str(trace))
    return profiler


def train(model: nn.Module, loader: DataLoader[Any], optimizer: Any, profiler: Any) -> None:
    """The loop of all these runs. It ends while a step is being recorded: no empty one follows."""
    for number, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == STEPS + 2:
            break
        profiler.step()


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
