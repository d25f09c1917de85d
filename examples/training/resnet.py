"""Fine-tunes a ResNet, slowly: what `python -m training demo` shows to the model. It is read, never run."""

from __future__ import annotations

import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger(__name__)


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


class ResNet(nn.Module):
    def __init__(self, blocks: int = 8, channels: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.blocks(self.stem(images))
        return self.head(features.mean(dim=(2, 3)))


def train(images: Dataset, epochs: int = 10) -> list[float]:
    device = torch.device("cuda")
    model = ResNet().to(device)
    loader = DataLoader(images, batch_size=128, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    correct = 0
    for epoch in range(epochs):
        for batch, labels in loader:
            weights = torch.ones(len(labels)).to(device)
            batch = batch.to(device)
            labels = labels.to(device)
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            scores = model(batch)
            loss = (nn.functional.cross_entropy(scores, labels, reduction="none") * weights).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            correct += (scores.argmax(1) == labels).sum().item()
            torch.cuda.empty_cache()
        log.info("epoch %d: loss %.3f, correct %d", epoch, losses[-1], correct)
    return losses


def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = torch.tensor([])
    for batch, labels in loader:
        predicted = model(batch.cuda()).argmax(1).cpu()
        right = torch.cat([right, (predicted == labels).float()])
    return right.mean().item()
