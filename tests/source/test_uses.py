"""Where a value goes: each case asks about the call of `read()`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.uses import COMPARED, COMPUTED, IGNORED, PASSED, REDUCED, REPORTED, RETURNED, STORED
from ptopt.source.work import limited


def _uses(code: str) -> frozenset[str]:
    file = SourceFile.parse("f.py", textwrap.dedent(code).encode())
    call = next(
        c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "read"
    )
    return file.uses.of(call)


@pytest.mark.parametrize(
    ("code", "ways"),
    [
        ("read()", {IGNORED}),
        ("x = read()", {IGNORED}),
        ("print(read())", {REPORTED}),
        ("total_loss += read()", {REPORTED}),
        ("losses.append(read())", {REPORTED}),
        ("rows.append(read())", {STORED}),
        ("self.x = read()", {STORED}),
        ("text = f'{read()}'", {REPORTED}),
        ("logs['loss'] = float(read())", {REPORTED}),
        ("f(read())", {PASSED}),
        ("def f():\n    return read()", {RETURNED}),
        ("if read() > 3: pass", {COMPARED}),
        ("y = [a for a in b if read()]", {COMPARED}),
        ("y = {read(): 1}", {COMPARED}),
        ("y = table[read()]", {COMPARED}),
        ("y = read().sum()", {REDUCED}),
        ("y = read().detach().cpu().mean()", {REDUCED}),
        ("y = read().transpose(0, 1)", {COMPUTED}),
        ("x = read()\nif x: pass\nprint(x)", {COMPARED, REPORTED}),
        ("x = read(x.sum())\nprint(x)", {REPORTED}),  # the old value is summed
        ("for x in xs:\n    x = f(x)\n    x = read(x.sum())\n    print(x)", {REPORTED}),
        (
            "for y in ys:\n    x = read(y) + x.sum()\n    print(x)",
            {REDUCED, REPORTED},
        ),  # in the next iteration
        ("x = read()\ny = x\nz = y\nprint(z)", {REPORTED}),
    ],
)
def test_ways(code: str, ways: set[str]) -> None:
    assert _uses(code) == ways


def test_a_name_is_followed_to_its_first_uses_only() -> None:
    many = "".join(f"print(x + {i})\n" for i in range(5000))
    assert _uses(f"x = read()\n{many}") == {REPORTED}


def test_names_that_are_given_again_and_again_are_followed_once() -> None:
    again = "x = x + 1\n" * 40
    with limited(5_000):  # of 8 reads a name, 4 names make 4,096 paths
        assert _uses(f"x = read()\n{again}") == {COMPUTED}


def test_the_lines_of_a_name_tell_reads_from_stores() -> None:
    code = "x = 1\nx += x\ny = (\n    x\n)\ndel x\nfor x in y:\n    z = x\n"
    uses = SourceFile.parse("a.py", code.encode()).uses
    assert uses.lines("x") == ([2, 2, 4, 8], [1, 2, 6, 7])
    assert uses.lines("nothing") == ([], [])
