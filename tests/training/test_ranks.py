from __future__ import annotations

import ast

import pytest

from ptopt.source.file import SourceFile
from training.mutators.names import Names
from training.mutators.ranks import rank_of


@pytest.mark.parametrize(
    ("body", "rank"),
    [
        ("b, n = x.shape", 2),
        ("b, n, d = x.size()", 3),
        ("b, *rest = x.shape", None),
        ("n = x.size(0)", None),
        ("assert x.ndim == 3", 3),
        ("assert x.dim() == 1", 1),
        ("b, n = x.shape\n    assert x.ndim == 3", None),  # they disagree
        ("b, n = x.shape\n    x = x[0]", None),  # another tensor
        ("n = x.ndim == 2", None),
    ],
)
def test_the_function_says_how_many_dimensions(body: str, rank: int | None) -> None:
    assert rank_in(f"def f(x):\n    {body}\n    return x\n") == rank


@pytest.mark.parametrize(
    ("value", "rank"),
    [
        ("torch.zeros(3, 4)", 2),
        ("torch.zeros(n)", None),
        ("torch.zeros((n, 3, 4))", 3),
        ("torch.arange(n)", 1),
        ("y.flatten()", 1),
        ("y.flatten(1)", None),
        ("torch.flatten(y)", 1),
        ("torch.flatten(y, 1)", None),
        ("y.view(-1, 4)", 2),
        ("torch.reshape(y, (2, 3, 4))", 3),
        ("torch.arange(n).float().to(device)", 1),
        ("torch.exp(torch.arange(n))", 1),
        ("rearrange(y, 'b (h d) n -> b h (d n)')", 3),
        ("rearrange(y, '... d -> d ...')", None),
        ("model(y)", None),
    ],
)
def test_what_is_assigned_says_it(value: str, rank: int | None) -> None:
    assert rank_in(f"import torch\n\n\ndef f(y, n):\n    x = {value}\n    return x\n") == rank


def test_an_annotation_says_it() -> None:
    assert rank_in("def f(x: Float['b n d']):\n    return x\n") == 3
    assert rank_in("def f(x: Float['... d']):\n    return x\n") is None


def rank_in(text: str) -> int | None:
    source = SourceFile.parse("a.py", text.encode())
    returned = next(source.index.of_type(ast.Return)).value
    assert returned is not None
    return rank_of(source, returned)


def test_names_that_nothing_shows() -> None:
    shown = Names.of(
        ast.parse(
            "import torch\n\n\ndef f(self, x, args):\n    y = self.proj(x)\n    return y * args.scale\n"
        )
    )
    assert not shown.unknown_in(
        ast.parse("z = torch.stack([self.proj(x)]).mean()\nz = z * args.scale * len(x)")
    )
    assert shown.unknown_in(ast.parse("self.norm(x) + bias")) == {"norm", "bias"}
    assert shown.unknown_in(ast.parse("args.workers")) == {"workers"}
