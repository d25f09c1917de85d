"""Code in a message: on one line, and cut between words."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.base import quote
from ptopt.source.file import SourceFile


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("model(x)", "model(x)"),
        ("model(images, attention_mask=mask)", "model(images, attention_mask=mask)"),
        ("model(input_ids, images, attention_mask=mask, targets=labels)", "model(input_ids, images, …)"),
        ("loss_of(model(inputs, attention_mask), targets).item()", "loss_of(model(inputs, …)).item()"),
        (
            "(a.flatten(0) == target[first][: lengths[first]]).sum().item()",
            "(a.flatten(0) == target[first]…)….item()",
        ),
        ("a" * 60, "a" * 39 + "…"),
        ("torch.zeros(n) \\\n    .to(device)", "torch.zeros(n).to(device)"),
    ],
)
def test_code_is_cut_between_words(code: str, shown: str) -> None:
    file = SourceFile.parse("a.py", f"{code}\n".encode())
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert quote(file, statement.value, 40) == f"`{shown}`"
