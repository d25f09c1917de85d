"""Lines and statements of texts that may be no Python at all."""

from __future__ import annotations

import ast
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.signals.statements import lines, statements

TEXT = """\
class Trainer:
    def fit(
        self,
        loader,
    ):
        total = step(loader,
            [1, 2,],  # two
        )
        name = 'a' + \\
            "b"
        text = '''x = 1  # no comment
y = 2'''

async def run(): pass
done = True
"""


def test_what_a_statement_is() -> None:
    assert [(u.text, u.first, u.last, u.scope) for u in statements(TEXT)] == [
        ("classTrainer:", 1, 1, ""),
        ("deffit(self,loader):", 2, 5, ".Trainer"),
        ("total=step(loader,[1,2])", 6, 8, ".Trainer.fit"),
        ('name="a"+"b"', 9, 10, ".Trainer.fit"),
        ("text='''x = 1  # no comment\ny = 2'''", 11, 12, ".Trainer.fit"),
        ("asyncdefrun():pass", 14, 14, ""),
        ("done=True", 15, 15, ""),
    ]


def test_a_line_has_the_scope_of_its_statement() -> None:
    found = lines(TEXT, statements(TEXT))
    assert [u.text for u in found] == [line.rstrip() for line in TEXT.split("\n")]
    assert (found[4].text, found[4].scope) == ("    ):", ".Trainer")
    assert (found[7].scope, found[12].scope, found[14].scope) == (".Trainer.fit", ".Trainer.fit", "")


PIECES = st.sampled_from(
    [
        "def f():\n",
        "    ",
        "x = 1\n",
        "(",
        ")",
        ",",
        "#",
        '"""',
        "'''",
        '"',
        "'",
        "\\",
        "\n",
        "a",
        "\r\n",
        "{",
        "]",
        "\0",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=60).map("".join)))
def test_any_text_has_lines_and_statements(text: str) -> None:
    found = statements(text)
    assert len(lines(text, found)) == text.count("\n") + 1
    assert all(a.last < b.first for a, b in pairwise(found))
    assert all(u.text and 1 <= u.first <= u.last <= text.count("\n") + 1 for u in found)


@given(
    st.lists(st.sampled_from(["x = 1", "y = f(1,\n  2)", "# note", "", "if x:\n    z = [\n  3]"]), max_size=8)
)
def test_as_many_statements_as_python_finds(parts: list[str]) -> None:
    text = "\n".join(parts) + "\n"
    wanted = sorted(node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
    assert [unit.first for unit in statements(text)] == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '"""' + '\\"""' * 150_000,
        "'''" * 300_001,
        "(" * 500_000,
        "'\n" * 400_000,
        "\\" * 500_000,
        "def " + "f" * 100_000 + "():\n" + " def a():\n" * 80_000,
        "#" * 1_000_000,
        '"' * 999_999,
    ],
    ids=["escaped", "triple", "open", "quotes", "backslashes", "scopes", "comment", "doubles"],
)
def test_hostile_texts_take_time_linear_in_their_length(text: str) -> None:
    before = time.process_time()
    lines(text, statements(text))
    assert time.process_time() - before < 20  # about one second; a quadratic one takes hours
