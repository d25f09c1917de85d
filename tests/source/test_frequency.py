"""How often a line runs: each case asks about the call of `here()`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.frequency import Frequency, Often

HEADER = "import torch\nfrom torch import nn, Tensor\nfrom torch.utils.data import Dataset, DataLoader\n\n"


def _of(code: str) -> Frequency:
    file = SourceFile.parse("f.py", (HEADER + textwrap.dedent(code)).encode())
    call = next(
        c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here"
    )
    return file.frequencies.of(call)


TRAINING = """
for epoch in range(9):
    {epoch}
    for x in loader:
        {step}
        model(x).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "often"),
    [
        ("here()", Often.ONCE),
        (TRAINING.format(epoch="here()", step="pass"), Often.EPOCH),
        (TRAINING.format(epoch="pass", step="here()"), Often.STEP),
        (TRAINING.format(epoch="pass", step="if i % 10 == 0: here()"), Often.RARELY),
        ("class Net(nn.Module):\n    def __init__(self):\n        here()", Often.ONCE),
        ("class Net(nn.Module):\n    def forward(self, x):\n        here()", Often.STEP),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        if self.lora_rank > 0:\n            here()",
            Often.STEP,
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        if self.debug:\n            here()",
            Often.RARELY,
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        for layer in self.layers:\n            here()",
            Often.LAYER,
        ),
        ("class Rows(Dataset):\n    def __getitem__(self, i):\n        here()", Often.ELEMENT),
        ("class L1Loss:\n    def __call__(self, a, b):\n        here()", Often.STEP),
        ("def mask(x):\n    here()\n    return x.device", Often.EVALUATION),
        ("def mask(x: Tensor):\n    here()", Often.EVALUATION),
        ("def build_mask(x: Tensor):\n    here()", Often.EVALUATION),
        ("def load_weights(x: Tensor):\n    here()", Often.ONCE),
        ("class A:\n    def __repr__(self):\n        return here() + self.device", Often.ONCE),
        ("def helper(a):\n    here()", Often.UNKNOWN),
        ("def helper(a):\n    here()\n\ndef training_step(self, batch):\n    helper(3)", Often.STEP),
        ("def load_all(names):\n    for name in names:\n        here()", Often.ONCE),
        ("def validation_step(self, batch):\n    here()", Often.EVALUATION),
    ],
)
def test_scale(code: str, often: Often) -> None:
    assert _of(code).often is often


def test_items_of_a_dataset_run_in_a_worker() -> None:
    assert _of("class Rows(Dataset):\n    def __getitem__(self, i):\n        here()").in_worker


def test_the_reason_names_one_function_on_the_way() -> None:
    chain = "".join(f"def f{i}(a):\n    f{i + 1}(a)\n\n" for i in range(4))
    found = _of(f"{chain}def f4(a):\n    here()\n\ndef training_step(self, batch):\n    f0(batch)\n")
    assert found.often is Often.STEP
    assert found.reason.count("through") == 1
