from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.dataset.regions import cut, regions

FILE = '''\
"""A module."""
import os
import torch
from torch import nn, optim
try:
    import numpy as np
except ImportError:
    np = None


def train(model, loader):
    optimizer = optim.SGD(model.parameters(), 0.1)
    for x in loader:
        model(x).backward()
        optimizer.step()


def small():
    pass


class Net(nn.Module):
    def forward(self, x):
        """Multiplies.

        Twice.
        """
        return torch.relu(x) * np.pi
'''


def test_functions_and_methods_are_cut_with_what_they_need() -> None:
    found = {region.symbol: region for region in regions("a.py", FILE)}
    assert set(found) == {"train", "Net.forward"}
    assert found["train"].context == "from torch import optim\n\n"
    assert found["Net.forward"].context == (
        "import torch\nfrom torch import nn\nimport numpy as np\n\n\nclass Net(nn.Module):\n"
    )
    assert found["Net.forward"].text.startswith("def forward(self, x):\n    ")
    assert found["Net.forward"].text in FILE.replace("\n    ", "\n")


def test_a_region_as_file_parses_and_is_cut_out_again() -> None:
    for region in regions("a.py", FILE):
        text = region.as_file()
        ast.parse(text)
        assert cut(text, region.first_line, region.method) == region.text
        assert text.split("\n")[region.first_line - 1].lstrip().startswith("def ")


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n    torch.\n",
        "import torch\ndef f():\n\tx = 1\n\ty = torch\n\treturn x\n",
        "class A:\n    def f(loss):\n        x = '''\nnot indented'''\n        y = 1\n        return x\n",
        "x" * 100 + "(" * 5000,
        "\0",
    ],
)
def test_what_cannot_be_cut_is_left_out(text: str) -> None:
    assert list(regions("a.py", text)) == []


@given(st.text(alphabet="ab =()\n\t:'\"#deftorch,", max_size=200))
def test_any_text_is_survived(text: str) -> None:
    for region in regions("a.py", text):
        ast.parse(region.as_file())
