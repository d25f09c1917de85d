"""What rules state with 0.9, so that it is commented on whatever the ranker makes of it, and what is next to it."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.findings import TEXTBOOK
from ptopt.rules import rules
from ptopt.rules.engine import run
from ptopt.rules.examples import as_file
from ptopt.source.file import SourceFile

EVALUATION = """
def measure(model, loader):
    model.eval()
    total = 0
    for x in loader:
        total += model(x.cuda()).sum().item()
    return total
"""
COUNTED = """
from torch.nn.parallel import DistributedDataParallel

class Trainer:
    def __init__(self, model):
        self.model, self.count = DistributedDataParallel(model), 0

    def run_step(self, batch):
        self.model(batch).backward()
        self.count += 1
        if self.count >= self.every:
            self.optimizer.step()
            self.count = 0
"""
PADDED = """
class Net(nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        return [self.net(x[i, : lengths[i]]) for i in range(x.shape[0])]
"""
SERVED = """
from fastapi import FastAPI
from transformers import pipeline

app = FastAPI()
classify = pipeline("text-classification")

@app.post("/classify")
async def label(text: str):
    return classify(text)
"""


def _stated(rule: str, code: str) -> list[float]:
    file = SourceFile.parse("lib/code.py", as_file(textwrap.dedent(code)).encode())
    chosen = [each for each in rules() if each.name == rule]
    return [hit.problem.confidence for hit in run(file, chosen)]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("evaluation-records-graph", EVALUATION),
        ("accumulation-syncs-every-micro-batch", COUNTED),
        ("tensor-as-python-number", PADDED),
        ("inference-blocks-event-loop", SERVED),
    ],
)
def test_a_textbook_case(rule: str, code: str) -> None:
    assert _stated(rule, code) == [TEXTBOOK]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("evaluation-records-graph", EVALUATION.replace("measure", "benchmark")),
        ("evaluation-records-graph", EVALUATION.replace("model(x.cuda())", "model.encode_image(x.cuda())")),
        (
            "accumulation-syncs-every-micro-batch",
            COUNTED.replace("DistributedDataParallel(model)", "ddp(model)"),
        ),
        ("tensor-as-python-number", PADDED.replace("forward", "beam_search")),
        ("inference-blocks-event-loop", SERVED.replace('@app.post("/classify")', "")),
    ],
)
def test_what_is_less_sure(rule: str, code: str) -> None:
    stated = _stated(rule, code)
    assert stated and max(stated) < TEXTBOOK
