"""What is trained on toy data is proposed, and not worth a comment by default."""

from __future__ import annotations

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

TRAINING = """\
import torch

def train(loader, model, optimizer):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""
CONFIG = Config.model_validate({"select": ["full-precision-training"], "min-confidence": 0.0})


@pytest.mark.parametrize(
    ("path", "text", "stated"),
    [
        ("train.py", TRAINING, 0.45),
        ("train_mnist.py", TRAINING, 0.35),
        ("train_toy.py", TRAINING, 0.35),
        ("train.py", TRAINING + "data = torchvision.datasets.CIFAR10(root)\n", 0.35),
    ],
)
def test_precision_on_toy_data_is_stated_with_less_confidence(path: str, text: str, stated: float) -> None:
    (finding,) = review_files(
        [whole_file(path, text.encode())], config=CONFIG, facts=NO_FACTS, limit_to_change=False
    ).findings
    assert dict(finding.features)["stated confidence"] == stated
