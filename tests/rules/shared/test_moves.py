"""Which calls send a tensor to an accelerator."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.shared.moves import Move, move_of
from ptopt.source.file import SourceFile


def _move(code: str) -> Move | None:
    file = SourceFile.parse("example.py", f"import torch\n{code}\n".encode())
    statement = file.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return move_of(statement.value, file)


@pytest.mark.parametrize(
    ("code", "device", "dtype"),
    [
        ("x.cuda()", '"cuda"', ""),
        ("x.cuda(1)", '"cuda:1"', ""),
        ("x.cuda(args.gpu)", "args.gpu", ""),
        ("x.to(device)", "device", ""),
        ("x.to(self.device, torch.float16)", "self.device", "torch.float16"),
        ("x.to(dtype=torch.int64, device=y.device)", "y.device", "torch.int64"),
        ("x.to('cuda:0')", "'cuda:0'", ""),
        ("x.to(torch.device('cuda', rank))", "torch.device('cuda', rank)", ""),
        ("x.to(local_rank)", "local_rank", ""),
    ],
)
def test_moves_are_seen_with_their_device_and_dtype(code: str, device: str, dtype: str) -> None:
    move = _move(code)
    assert move is not None
    assert (move.device, move.dtype, move.non_blocking, move.plain) == (device, dtype, False, True)


@pytest.mark.parametrize(
    "code",
    [
        "x.to(torch.float16)",
        "x.to(dtype)",
        "x.to(device_dtype)",
        "x.to('cpu')",
        "x.to(cpu_device)",
        "x.to(torch.device('cpu'))",
        "x.to(other)",
        "x.to(**options)",
        "x.to()",
        "x.float()",
        "to(device)",
    ],
)
def test_casts_and_moves_to_the_cpu_are_none(code: str) -> None:
    assert _move(code) is None


def test_non_blocking_moves_say_so() -> None:
    for code in ("x.cuda(non_blocking=True)", "x.to(device, non_blocking=True)", "x.cuda(0, True)"):
        move = _move(code)
        assert move is not None
        assert move.non_blocking
        assert not move.plain
