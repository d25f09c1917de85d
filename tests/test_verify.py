"""Fixes are applied and checked before anybody sees them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.findings import Edit, Fix, Safety
from ptopt.rules.base import Problem, Rule, replace_node
from ptopt.source.file import SourceFile
from ptopt.verify import EditError, apply_edits, together, verified


class NoTwos(Rule):
    """Reports the number 2, and replaces it by what `text` says."""

    id = "T1"
    name = "two"
    family = "test"
    triggers = ("2",)
    nodes = (ast.Constant,)
    text = "3"

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Constant) and node.value == 2:
            yield Problem(node, "two", 0.9, fix=Fix(Safety.SAFE, (replace_node(file, node, self.text),)))


def _verified(code: str, text: str) -> Fix | None:
    rule = NoTwos()
    rule.text = text  # type: ignore[misc]
    file = SourceFile.parse("f.py", code.encode())
    problems = [p for n in file.index.of_type(ast.Constant) for p in rule.check(n, file)]
    return verified(file, rule, problems[0], len(problems))


def test_a_fix_that_mends_passes() -> None:
    assert _verified("x = 2\ny = 1\n", "3") is not None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(", id="does not parse"),
        pytest.param("2", id="changes nothing"),
        pytest.param("1 + 2", id="the rule still fires"),
        pytest.param("(2, 2)", id="it fires twice"),
    ],
)
def test_a_fix_that_does_not_mend_is_dropped(text: str) -> None:
    assert _verified("x = 2\ny = 1\n", text) is None


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("torch.long", False),
        ("th.long", True),
        ("len(y)", True),
        ("[n for n in y]", True),
        ("missing", False),
    ],
)
def test_a_fix_reads_no_name_that_nothing_binds(text: str, holds: bool) -> None:
    code = "import torch.nn as nn, os.path\nimport torch as th\ny = 1\nx = 2\n"
    assert (_verified(code, text) is not None) == holds


def test_two_problems_on_a_line_are_fixed_one_at_a_time() -> None:
    assert _verified("x = 2 + 2\n", "3") is not None


def test_a_declared_encoding_is_kept() -> None:
    rule = NoTwos()
    file = SourceFile.parse("f.py", "# -*- coding: latin-1 -*-\nname = 'é'; x = 2\n".encode("latin-1"))
    (problem,) = [p for n in file.index.of_type(ast.Constant) for p in rule.check(n, file)]
    assert verified(file, rule, problem, 1) is not None


def test_edits_that_overlap_or_reach_beyond_are_refused() -> None:
    with pytest.raises(EditError, match="overlap"):
        apply_edits("abcdef", [Edit(0, 3, "x"), Edit(2, 4, "y")])
    with pytest.raises(EditError, match="ends at byte 9"):
        apply_edits("abcdef", [Edit(0, 9, "x")])


@given(st.text(), st.data())
def test_edits_replace_bytes_of_the_utf8_form(text: str, data: st.DataObject) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return
    cuts = sorted(data.draw(st.lists(st.integers(0, size), min_size=2, max_size=2)))
    raw = text.encode()
    expected = raw[: cuts[0]] + b"<new>" + raw[cuts[1] :]
    try:
        expected.decode()
    except UnicodeDecodeError:
        return
    assert apply_edits(text, [Edit(cuts[0], cuts[1], "<new>")]).encode() == expected


class NoHelper(Rule):
    """Replaces `helper(...)` by 3."""

    id = "T2"
    name = "helper"
    family = "test"
    triggers = ("helper",)
    nodes = (ast.Module,)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        for call in file.calls_named("helper") if isinstance(node, ast.Module) else ():
            yield Problem(call, "helper", 0.9, fix=Fix(Safety.SAFE, (replace_node(file, call, "3"),)))


def _fixed(code: str, path: str = "f.py") -> str | None:
    rule = NoHelper()
    file = SourceFile.parse(path, code.encode())
    (problem,) = rule.check(file.tree, file)
    fix = verified(file, rule, problem, 1)
    return None if fix is None else apply_edits(code, fix.edits)


@pytest.mark.parametrize(
    ("code", "fixed"),
    [
        pytest.param("from a import helper\nx = 1\ny = helper(x)\n", "x = 1\ny = 3\n", id="an import"),
        pytest.param(
            "def f(x):\n    n = len(x)\n    return helper(n)\n",
            "def f(x):\n    return 3\n",
            id="a local name",
        ),
        pytest.param(
            "def f(x):\n    n = len(x)\n    m = n + 1\n    return helper(m)\n",
            "def f(x):\n    return 3\n",
            id="one after the other",
        ),
        pytest.param("def f(x):\n    n = run(x)\n    return helper(n)\n", None, id="it may do more"),
        pytest.param("from a import b, helper\ny = helper(b)\n", None, id="shares its line"),
        pytest.param(
            "from a import helper\ny = helper(1)\nz = helper\n",
            "from a import helper\ny = 3\nz = helper\n",
            id="still used",
        ),
        pytest.param(
            "from a import helper\n__all__ = ['helper']\ny = helper(1)\n",
            "from a import helper\n__all__ = ['helper']\ny = 3\n",
            id="for others",
        ),
        pytest.param(
            "def f(x):\n    n = 1\n    def g():\n        return n\n    return helper(n), g\n",
            "def f(x):\n    n = 1\n    def g():\n        return n\n    return 3, g\n",
            id="read by a function within",
        ),
    ],
)
def test_a_fix_leaves_nothing_stale(code: str, fixed: str | None) -> None:
    assert _fixed(code) == fixed


def test_a_magic_may_read_what_the_fix_reads_no_more() -> None:
    code = "from a import helper\n%timeit helper(2)\ny = helper(1)\n"
    file = SourceFile.parse("f.py", code.encode())
    rule = NoHelper()
    (problem,) = rule.check(file.tree, file)
    fix = verified(file, rule, problem, 1)
    assert fix is not None and [edit.replacement for edit in fix.edits] == ["3"]


def test_imports_of_a_package_are_for_others() -> None:
    code = "from a import helper\ny = helper(1)\n"
    assert _fixed(code, "a/__init__.py") == "from a import helper\ny = 3\n"


def test_what_several_fixes_assume_is_said_once() -> None:
    one = Fix(Safety.UNSAFE, (Edit(0, 1, "x"),), "`a` has 3 dimensions; no `.view` follows")
    two = Fix(Safety.UNSAFE, (Edit(2, 3, "y"),), "`b` has 3 dimensions; no `.view` follows")
    both = together([one, two])
    assert both is not None
    assert both.assumption == "`a` has 3 dimensions (the same for `b`); no `.view` follows"


def test_fixes_are_made_together_or_not_at_all() -> None:
    one, two = Fix(Safety.SAFE, (Edit(0, 1, "x"),)), Fix(Safety.UNSAFE, (Edit(2, 3, "y"),), "so")
    assert together([two, one, one]) == Fix(Safety.UNSAFE, (Edit(0, 1, "x"), Edit(2, 3, "y")), "so")
    assert together([one, None]) is None
    assert together([one, Fix(Safety.SAFE, (Edit(0, 2, "z"),))]) is None
    assert together([]) is None
