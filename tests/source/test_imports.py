"""Names resolved through the import table."""

from __future__ import annotations

import ast

import pytest

from ptopt.source.file import SourceFile


def _qualified(code: str) -> str:
    """What the function of the last call is."""
    file = SourceFile.parse("f.py", code.encode())
    calls = sorted(file.index.of_type(ast.Call), key=lambda c: (c.lineno, c.col_offset))
    return file.imports.qualified(calls[-1].func)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import torch\ntorch.zeros(1)", "torch.zeros"),
        ("import torch as t\nt.zeros(1)", "torch.zeros"),
        ("import torch.nn as nn\nnn.Linear(1, 2)", "torch.nn.Linear"),
        ("from torch import nn\nnn.Linear(1, 2)", "torch.nn.Linear"),
        ("import torch.nn.functional as F\nF.relu(x)", "torch.nn.functional.relu"),
        ("from torch.nn import functional as F\nF.relu(x)", "torch.nn.functional.relu"),
        ("import torch.nn.functional\ntorch.nn.functional.relu(x)", "torch.nn.functional.relu"),
        ("from torch.utils.data.dataloader import DataLoader\nDataLoader(d)", "torch.utils.data.DataLoader"),
        ("from .ops import zeros\nzeros(1)", ".ops.zeros"),
        ("from . import ops\nops.zeros(1)", ".ops.zeros"),
        ("from ..lib.ops import zeros\nzeros(1)", "..lib.ops.zeros"),
        ("try:\n    import cupy as np\nexcept ImportError:\n    import numpy as np\nnp.ones(1)", "cupy.ones"),
        ("def f():\n    import torch\n    torch.zeros(1)", "torch.zeros"),
        ("import torch\ndef f(torch):\n    torch.zeros(1)", ""),
        ("import torch\ndef f():\n    torch = fake\n    torch.zeros(1)", ""),
        ("from torch import zeros\ndef zeros(n):\n    pass\nzeros(1)", ""),
        ("import torch\ndef f(torch):\n    pass\ntorch.zeros(1)", "torch.zeros"),
        ("from torch import *\nzeros(1)", ""),
        ("zeros(1)", ""),
        ("import torch\nfactory()(1)", ""),
    ],
)
def test_qualified(code: str, expected: str) -> None:
    assert _qualified(code) == expected


def test_imports_tells_packages() -> None:
    file = SourceFile.parse("f.py", b"import torch.nn as nn\nfrom transformers import Trainer\n")
    assert file.imports.imports("torch") and file.imports.imports("transformers")
    assert file.imports.imports("torch.nn") and not file.imports.imports("torch.nn.functional")
    assert not file.imports.imports("torchvision")


def test_names_that_come_through_a_star() -> None:
    assert _qualified("from .parts import *\nnn.Linear(1, 2)") == "torch.nn.Linear"
    assert _qualified("from .parts import *\nimport mynn as nn\nnn.Linear(1, 2)") == "mynn.Linear"
    assert _qualified("from .parts import *\n\ndef f(nn):\n    nn.Linear(1, 2)") == ""
    assert _qualified("from .parts import Block\nnn.Linear(1, 2)") == ""
