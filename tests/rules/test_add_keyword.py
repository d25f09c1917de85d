"""A keyword is added in the layout that the call has."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.base import add_keyword
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f()", "f(k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a, )", "f(a, k=1)"),
        ("f((a))", "f((a), k=1)"),
        ("f(\n    a,\n)", "f(\n    a,\n    k=1,\n)"),
        ("f(\n    a,  # what a is\n)", "f(\n    a,  # what a is\n    k=1,\n)"),
        ("f(a, b = 1)", "f(a, b = 1, k = 1)"),
        ("f(a = b == 1, b=1)", "f(a = b == 1, b=1, k=1)"),
        ("f(a=b == 1)", "f(a=b == 1, k=1)"),
        ("f(\r\n    a,  # what a is\r\n)", "f(\r\n    a,  # what a is\r\n    k=1,\r\n)"),
    ],
)
def test_add_keyword(code: str, expected: str) -> None:
    file = SourceFile.parse("a.py", f"{code}\n".encode())
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    assert apply_edits(f"{code}\n", [add_keyword(file, statement.value, "k=1")]) == f"{expected}\n"
