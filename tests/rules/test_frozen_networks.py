"""PTO501 on a network of which the pass runs frozen networks alone, as the file that defines it shows."""

from __future__ import annotations

import pytest

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

SCRIPT = """\
import torch
from lib.net import make


def main(loader):
    model = make()
    model.eval()
    for texts in loader:
        features = model.encode_text(texts)
        print(features.cpu().numpy())
"""
NET = """\
import torch
from torch import nn
from lib.text import load_bert


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(1))
        if kind == "clip":
            self.text_model = self.load_clip()
            self.encode_text = self.encode_clip
        else:
            self.text_model = load_bert()
            self.encode_text = self.encode_bert

    def load_clip(self):
        clip_model = load("clip")
        for p in clip_model.parameters():
            p.requires_grad = {needed}
        return clip_model

    def encode_clip(self, texts):
        device = next(self.parameters()).device
        return self.text_model.encode_text(texts.to(device)).float()

    def encode_bert(self, texts):
        found = self.text_model(texts)
        return {bert}
"""
WRAPPER = """\
class Guided:
    def __init__(self, model):
        self.encode_text = model.encode_text
"""


def _lines(net: str, **around: str) -> list[int]:
    rule = find_rule("PTO501")
    assert rule is not None
    files = {f"lib/{name}.py": text.encode() for name, text in {"net": net, **around}.items()}
    file = SourceFile.parse("sample.py", SCRIPT.encode(), repository=Repository(files))
    return [hit.span.start for hit in run(file, [rule()])]


@pytest.mark.parametrize(
    ("needed", "bert", "expected"),
    [
        ("False", "found", []),
        ("True", "found", [9]),
        ("False", "self.project(found)", [9]),
        ("False", "found * self.scale", [9]),
    ],
)
def test_a_pass_of_frozen_networks_alone(needed: str, bert: str, expected: list[int]) -> None:
    assert _lines(NET.format(needed=needed, bert=bert), wrapper=WRAPPER) == expected


@pytest.mark.parametrize(("frozen", "expected"), [("requires_grad_(False)", []), ("eval()", [9])])
def test_what_makes_the_network_is_read(frozen: str, expected: list[int]) -> None:
    text = f"def load_bert():\n    bert = build()\n    bert.{frozen}\n    return bert\n"
    assert _lines(NET.format(needed="False", bert="found"), text=text) == expected


def test_a_network_of_unknown_weights_is_reported() -> None:
    assert _lines(WRAPPER) == [9]
