"""Which assignments of a function nobody reads."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.index import FunctionNode
from ptopt.source.liveness import Liveness, liveness


def _function(code: str) -> FunctionNode:
    function = ast.parse(textwrap.dedent(code)).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def _live(function: FunctionNode, kept: str = "") -> Liveness | None:
    """`kept`: calls of this name have an effect."""
    return liveness(function, lambda value: not kept or kept not in ast.unparse(value))


def _unread(code: str, kept: str = "") -> list[int]:
    """The lines of the assignments that nobody reads; the first line of the body is 1."""
    function = _function("def f(a, b):\n" + textwrap.indent(textwrap.dedent(code).strip("\n"), "    "))
    found = _live(function, kept)
    assert found is not None
    return sorted(
        s.lineno - 1 for s in found.after if isinstance(s, (ast.Assign, ast.AnnAssign)) and found.is_unread(s)
    )


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x = g(a)\nreturn a", [1]),
        ("x = g(a)\nreturn x", []),
        ("x: int = g(a)\nreturn a", [1]),
        ("x = g(a)\nx = g(b)\nreturn x", [1]),
        ("x = g(a)\nx += 1\nreturn b", []),  # it may be a view that others hold
        ("x = g(a)\ny = h(x)\nreturn a", [1, 2]),  # what is read for nothing
        ("x, y = g(a)\nreturn y", []),
        ("x, (y, *z) = g(a)\nreturn a", [1]),
        ("a.x = g(a)\nreturn b", []),
        ("x = y = g(a)\nreturn y", []),
        ("x = g(a)\nx[0] = 1\nreturn a", []),
        ("x = g(a)\ndel x\nreturn a", [1]),
        ("x = g(a)\nreturn f'{x}'", []),
        ("x = g(a)\nreturn [x for b in a]", []),
        ("x = g(a)\nreturn lambda: x", []),
        ("x = g(a)\ndef h():\n    return x\nreturn h", []),
        ("global x\nx = g(a)", []),
    ],
)
def test_straight_code(code: str, lines: list[int]) -> None:
    assert _unread(code) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x = g(a)\nif a:\n    return x\nreturn b", []),
        ("x = g(a)\nif a:\n    x = b\nelse:\n    x = a\nreturn x", [1]),
        ("x = g(a)\nif a:\n    x = b\nreturn x", []),
        ("if a:\n    x = g(a)\n    return b\nx = b\nreturn x", [2]),
        ("x = g(a)\nmatch b:\n    case 1:\n        return x\nreturn a", []),
        ("x = g(a)\nwith b as c:\n    x = c\nreturn x", [1]),
        ("x = g(a)\nwith b as c:\n    y = x\n    c(y)", []),
        ("raise_ = g(a)\nraise ValueError(b)", [1]),
    ],
)
def test_branches(code: str, lines: list[int]) -> None:
    assert _unread(code) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("for i in a:\n    x = g(i)\nreturn b", [2]),
        ("for i in a:\n    x = g(i)\nreturn x", []),
        ("x = 0\nfor i in a:\n    print(x)\n    x = g(i)", []),
        (
            "h = 0\nfor i in a:\n    h = g(i, h)\nreturn a",
            [1, 3],
        ),  # each iteration reads it for the next alone
        ("for i in a:\n    x = g(i)\n    if i:\n        continue\n    print(x)", []),
        ("for i in a:\n    x = g(i)\n    if i:\n        break\n    x = 2\n    print(x)", [2]),
        ("while a:\n    x = g(a)\n    if b:\n        break\nelse:\n    return 1\nreturn x", []),
        ("while True:\n    x = g(a)\n    a = b", [2, 3]),
        ("for i in a:\n    for j in b:\n        x = g(i)\n    y = x\n    print(y)", []),
    ],
)
def test_loops(code: str, lines: list[int]) -> None:
    assert _unread(code) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x = g(a)\ntry:\n    x = g(b)\n    return x\nexcept ValueError:\n    return a", [1]),
        ("x = g(a)\ntry:\n    x = g(b)\nexcept ValueError:\n    pass\nreturn x", []),
        ("x = g(a)\ntry:\n    return b\nfinally:\n    print(x)", []),
        ("x = g(a)\nwith suppress(ValueError):\n    x = g(b)\nreturn x", []),
        ("try:\n    x = g(a)\nexcept ValueError as error:\n    print(error)\nelse:\n    return x", []),
    ],
)
def test_exceptions(code: str, lines: list[int]) -> None:
    assert _unread(code) == lines


def test_what_has_an_effect_reads_its_operands() -> None:
    code = "x = g(a)\ny = log(x)\nreturn a"
    assert _unread(code) == [1, 2]
    assert _unread(code, kept="log") == [2]


@pytest.mark.parametrize("word", ["locals()", "eval(a)", "exec(a)", "breakpoint()", "pdb.set_trace()"])
def test_code_that_sees_all_names_is_not_judged(word: str) -> None:
    assert _live(_function(f"def f(a):\n    x = g(a)\n    {word}\n")) is None


def test_what_is_needed_on_one_way() -> None:
    function = _function("def f(a):\n    x = g(a)\n    y = h(x)\n    z = a + 1\n    return y, z")
    found = _live(function)
    assert found is not None
    between = function.body[1:3]
    assert found.needed_for(between, frozenset("z")) == {"a"}
    assert found.needed_for(between, frozenset("y")) == {"h", "x"}
    assert found.reads(function.body[3]) == {"y", "z"}
