"""Tensors made in the wrong place or the wrong type."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.code import keyword_of, method_call
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    bracketed,
    need_import,
    remove_keyword,
    replace,
)

# Not the random ones: each device draws other numbers.
_FACTORIES = ("zeros", "ones", "full", "empty", "arange", "eye", "linspace")


_DTYPES = {
    "float": "FloatTensor",
    "long": "LongTensor",
    "int": "IntTensor",
    "half": "HalfTensor",
    "double": "DoubleTensor",
    "bool": "BoolTensor",
}


def _forward(body: str, base: str = "nn.Module") -> str:
    return f"import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net({base}):\n    def forward(self, x, y):\n        {body}\n"


class FactoryThenMove:
    """`torch.zeros(n, device=d)` becomes `torch.zeros(n).to(d)`."""

    rule = "factory-then-move"
    examples = (
        (
            _forward("return x + torch.arange(x.size(1), device=x.device)"),
            _forward("return x + torch.arange(x.size(1)).to(x.device)"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in _FACTORIES:
            for call in source.calls_named(name):
                device = keyword_of(call, "device")
                edit = remove_keyword(source, call, "device")
                if device is None or edit is None or keyword_of(call, "generator") is not None:
                    continue
                words = source.source(device)
                move = ".cuda()" if words in ('"cuda"', "'cuda'") else f".to({words})"
                start, end = source.bounds(call)
                if "\n" in words:
                    continue
                data = source.data
                inner = data[start : edit.start] + data[edit.end : end]
                yield Mutation((replace(source, call, inner.decode() + move),))


class AllocationThenMove:
    """`torch.zeros_like(x)` becomes `torch.zeros(x.shape, dtype=x.dtype).to(x.device)`."""

    rule = "factory-then-move"
    examples = (
        (
            _forward("return x + torch.ones_like(x)"),
            _forward("return x + torch.ones(x.shape, dtype=x.dtype).to(x.device)"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name in ("zeros_like", "ones_like"):
            for call in source.calls_named(name):
                if (
                    len(call.args) == 1
                    and not call.keywords
                    and isinstance(call.args[0], (ast.Name, ast.Attribute))
                ):
                    tensor = source.source(call.args[0])
                    made = f"torch.{name.removesuffix('_like')}({tensor}.shape, dtype={tensor}.dtype)"
                    slow = f"{made}.to({tensor}.device)"
                    yield Mutation((replace(source, call, slow),))


class LegacyTensorType:
    """`x.float()` becomes `x.type(torch.FloatTensor)`."""

    rule = "legacy-tensor-type"
    examples = (
        (
            _forward("return self.linear(x.to(self.device).float())"),
            _forward("return self.linear(x.to(self.device).type(torch.FloatTensor))"),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name, legacy in _DTYPES.items():
            for call in source.calls_named(name):
                receiver = method_call(call, name)
                if receiver is not None and not call.args and not call.keywords:
                    text = f"{bracketed(source, receiver)}.type(torch.{legacy})"
                    yield Mutation(
                        (*need_import(source, "torch", "import torch"), replace(source, call, text))
                    )


class AccidentalFloat64:
    """Random numbers drawn by NumPy, in float64, and not converted: torch would draw others."""

    rule = "accidental-float64"
    examples = (
        (
            (
                "import torch\nimport numpy as np\n\n\nfor x in loader:\n    noise = torch.randn(x.shape, device=device)\n"
                "    criterion(model(x.to(device)) + noise).backward()\n    optimizer.step()\n"
            ),
            (
                "import torch\nimport numpy as np\n\n\nfor x in loader:\n    noise = torch.from_numpy(np.random.randn(*x.shape)).to(device)\n"
                "    criterion(model(x.to(device)) + noise).backward()\n    optimizer.step()\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for name, draw in (
            ("randn", "randn(*{})"),
            ("rand", "rand(*{})"),
            ("randn_like", "randn(*{}.shape)"),
            ("rand_like", "rand(*{}.shape)"),
        ):
            for call in source.calls_named(name):
                device = keyword_of(call, "device")
                simple = len(call.args) == 1 and isinstance(call.args[0], (ast.Name, ast.Attribute))
                if not simple or (device is None) == (not name.endswith("_like")):
                    continue
                tensor = source.source(call.args[0])
                where = source.source(device) if device is not None else f"{tensor}.device"
                made = f"torch.from_numpy(np.random.{draw.format(tensor)})"
                imports = need_import(source, "np", "import numpy as np")
                slow, fast = (
                    replace(source, call, text)
                    for text in (f"{made}.to({where})", f"{made}.float().to({where})")
                )
                yield Mutation((*imports, slow), fast=(*imports, fast))
