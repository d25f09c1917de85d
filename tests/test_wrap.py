"""Long lines of a fix are broken as a formatter breaks them, and mean the same."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.findings import Edit, Fix, Safety
from ptopt.project.facts import ProjectFacts
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits
from ptopt.wrap import wrapped

OLD = "def f(q, k):\n    if q:\n        out = old(q)\n    return out\n"


def broken(new: str, limit: int = 40, text: str = OLD, old: str = "old(q)") -> str:
    start = text.index(old)
    facts = ProjectFacts(line_length=limit)
    file = SourceFile.parse("a.py", text.encode(), facts)
    fix = Fix(Safety.SAFE, (Edit(start, start + len(old), new),))
    return apply_edits(text, wrapped(file, fix).edits)


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        ("new(q, k)", ["        out = new(q, k)"]),
        ("new(query, key, scale=1.00)", ["        out = new(", "            query, key, scale=1.00", "        )"]),
        (
            "new(query, key, value, scale=1.0, p=0.5)",
            ["        out = new(", *(f"            {a}," for a in ("query", "key", "value", "scale=1.0", "p=0.5")), "        )"],
        ),
        (
            "new(query, another(key, value, scale=1.0))",
            ["        out = new(", "            query,", "            another(", "                key, value, scale=1.0", "            ),", "        )"],
        ),
        ("a.very_long_name.that_has.no_bracket_in_it", ["        out = a.very_long_name.that_has.no_bracket_in_it"]),
        ("new(k for k in range(20) if k > 2)", ["        out = new(", "            k for k in range(20) if k > 2", "        )"]),
        ("table[query, key, 'some longer text, here']", ["        out = table[", "            query,", "            key,", "            'some longer text, here',", "        ]"]),
    ],
)  # fmt: skip
def test_as_formatters_do(new: str, lines: list[str]) -> None:
    text = broken(new, 42 if "for k" in new else 40)
    assert text.split("\n")[2:-2] == lines
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(OLD.replace("old(q)", new)))


def test_headers_decorators_and_tabs() -> None:
    text = "class A:\n\tdef f(self):\n\t\tfor x in old:\n\t\t\tpass\n"
    assert "\t\tfor x in zip(\n\t\t\tself.first, self.second, self.third\n\t\t):\n" in broken(
        "zip(self.first, self.second, self.third)", text=text, old="old"
    )


def test_what_was_long_before_stays() -> None:
    text = "x = old(1)\n" + "y = function(" + "a, " * 30 + ")\n"
    assert broken("new(1)", text=text, old="old(1)") == text.replace("old", "new")


def test_without_settings_the_longest_line_of_the_file_decides() -> None:
    new = "new(" + ", ".join(["argument"] * 9) + ")"
    assert len(new) < 100
    assert broken(new, 0).count("\n") > OLD.count("\n")
    wide = OLD + "# " + "-" * 120 + "\n"
    assert broken(new, 0, text=wide).count("\n") == wide.count("\n")


@given(st.text(alphabet="ab,()[]{}:'# =*.\\", max_size=40), st.integers(20, 60))
def test_nothing_changes_but_the_layout(new: str, limit: int) -> None:
    text = broken(f"new({new})", limit)
    plain = OLD.replace("old(q)", f"new({new})")
    if text != plain:
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(plain))
        assert max(map(len, text.split("\n"))) <= max(map(len, plain.split("\n")))
