"""Makes torch load what it loads on first use: a confined process can open nothing."""

from __future__ import annotations

import importlib
import warnings

import torch
from torch.nn import functional


def warm() -> None:
    for module in (
        "torch.fft",
        "torch.linalg",
        "torch.special",
        "torch._subclasses.schema_check_mode",
        "numpy.linalg",
    ):
        try:
            importlib.import_module(module)
        except ImportError:  # not in this version
            continue
    warnings.simplefilter("ignore")
    x = torch.ones(2, 2, requires_grad=True)
    torch.autograd.grad((x @ x).softmax(-1).sum(), x)
    functional.embedding_bag(torch.tensor([[1, 0]]), torch.ones(2, 2))  # asks the processor what it is
    functional.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    torch.einsum("ij,jk->ik", x, x)
    str(x)
