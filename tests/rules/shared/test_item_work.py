"""Whether the items of a dataset lie in memory."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.shared.item_work import in_memory
from ptopt.source.file import SourceFile

LOADED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

def preload(items, name):
    images, labels = zip(*(items[i] for i in range(len(items))))
    if name == "all":
        return {}
    return TensorDataset(torch.stack(images), torch.tensor(labels))

loader = DataLoader(preload(LabelledImages(folder), "all"))
"""


@pytest.mark.parametrize(
    ("other", "expected"),
    [("TensorDataset(torch.stack(images))", True), ("list(items)", True), ("items", False), ("None", False)],
)
def test_what_a_function_returns_in_each_case(other: str, expected: bool) -> None:
    file = SourceFile.parse("train.py", LOADED.format(other).encode())
    (loader,) = (c for c in file.index.of_type(ast.Call) if file.source(c.func) == "DataLoader")
    assert isinstance(loader, ast.Call)
    assert in_memory(loader.args[0], file) is expected
