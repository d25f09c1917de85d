"""Edits that take code away leave the rest as it was, or are not made."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.shared.removal import remove_keyword, remove_statement
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits


def _file(text: str) -> SourceFile:
    return SourceFile.parse("example.py", text.encode())


def _call(file: SourceFile, name: str) -> ast.Call:
    return next(c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a()\ngone()\nb()\n", "a()\nb()\n"),
        ("a()\ngone()  # why\nb()\n", "a()\nb()\n"),
        ("def f():\n    gone(\n        1,\n    )\n    b()\n", "def f():\n    b()\n"),
        ("é = 'ü'\r\ngone()\r\nb()\r\n", "é = 'ü'\r\nb()\r\n"),
        ("a()\n\ngone()\n\nb()\n", "a()\n\nb()\n"),
        ("a()\n\ngone()\nb()\n", "a()\n\nb()\n"),
        ("if x:\n    a()\nelse:\n    gone()\n    b()\n", "if x:\n    a()\nelse:\n    b()\n"),
    ],
)
def test_a_statement_goes_with_its_lines(text: str, expected: str) -> None:
    file = _file(text)
    edit = remove_statement(file, _call(file, "gone"))
    assert edit is not None
    assert apply_edits(file.text, [edit]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "if x:\n    gone()\n",  # the block would be empty
        "a(); gone()\n",
        "gone(); a()\n",
        "a()\ngone()",  # no line end to take along
    ],
)
def test_a_statement_that_is_not_alone_stays(text: str) -> None:
    file = _file(text)
    assert remove_statement(file, _call(file, "gone")) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(a, gone=1)\n", "f(a)\n"),
        ("f(gone=1, b=2)\n", "f(b=2)\n"),
        ("f(a, gone=1, b=2)\n", "f(a, b=2)\n"),
        ("f(gone=1)\n", "f()\n"),
        ("f(\n    a,\n    gone=1,\n    b=2,\n)\n", "f(\n    a,\n    b=2,\n)\n"),
        ("f(\n    a,\n    gone=1,\n)\n", "f(\n    a,\n)\n"),
    ],
)
def test_a_keyword_goes_with_one_comma(text: str, expected: str) -> None:
    file = _file(text)
    edit = remove_keyword(file, _call(file, "f"), "gone")
    assert edit is not None
    assert apply_edits(file.text, [edit]) == expected


@pytest.mark.parametrize("text", ["f(a)\n", "f(a,  # why\n  gone=1)\n", "f((a), gone=1)\n"])
def test_a_keyword_that_is_absent_or_hard_to_cut_stays(text: str) -> None:
    file = _file(text)
    assert remove_keyword(file, _call(file, "f"), "gone") is None
