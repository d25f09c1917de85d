"""Words in the bytes of a file, found as a search of the text would find them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.source.searchable import Searchable

TEXT = "def größe(x): pass\nasync def load_all(y): return fetch_it (y)\n".encode()
_DEFINED = re.compile(rb"def ([\w\x80-\xff]+)\(")
_CALLED = re.compile(rb"([\w\x80-\xff]+)\s*\(")


def test_definitions_are_of_the_whole_name() -> None:
    text = Searchable(TEXT)
    assert "größe".encode() in text.defined
    assert b"load_all" in text.defined
    assert b"load" not in text.defined
    assert b"fetch_it" not in text.defined


def test_what_may_stand_in_a_text_is_no_definition() -> None:
    text = b'def step(x):\n    """As in\n\n    def run(x): ...\n    """\n    # def off(x):\n\nclass A:\n    async def go(self): pass\n'
    assert [name for name in (b"step", b"run", b"off", b"go", b"A") if Searchable(text).defines(name)] == [
        b"step",
        b"go",
    ]


def test_calls_may_have_a_space_before_the_bracket() -> None:
    text = Searchable(TEXT)
    assert text.calls(b"fetch_it")
    assert not text.calls(b"fetch")
    assert not text.calls(b"y")


@pytest.mark.parametrize("words", [b"etch", b"load_all", b"return fetch", b"(y)", "öß".encode()])
def test_words_are_found_inside_of_others(words: bytes) -> None:
    assert Searchable(TEXT).holds(words)
    assert not Searchable(b"nothing").holds(words)


def test_a_pattern_counts_where_the_words_are() -> None:
    text, pattern = Searchable(TEXT), re.compile(rb"fetch_\w+ ")
    assert text.matches(pattern, b"async")
    assert not text.matches(pattern, b"await")
    assert not text.matches(re.compile(rb"fetch_\w+\("), b"async")


@given(st.text(alphabet="abé_1 .(\n", max_size=30), st.sampled_from(["a", "ab", "é", "a1", "_", "aé"]))
def test_questions_on_names_are_those_of_a_search(text: str, name: str) -> None:
    data, word = f"def {text}".encode(), name.encode()
    asked = Searchable(data)
    assert (word in asked.defined) == (word in _DEFINED.findall(data))
    assert asked.calls(word) == (word in _CALLED.findall(data))
    assert asked.holds(word) == (word in data)


def test_the_text_of_a_function_ends_where_what_is_beside_it_begins() -> None:
    text = Searchable(
        b"def load(a):\n    def inner(b):\n        return a\n    return inner\n\n\nclass Other:\n"
        b"    async def load(self):\n        return 1\n\n    @property\n    def size(self):\n        return 2\n"
    )
    first, second = text.functions(b"load")
    assert first.startswith(b"def load(a)") and first.rstrip().endswith(b"return inner")
    assert second.rstrip().endswith(b"return 1")
    assert next(text.functions(b"inner")).startswith(b"def inner(b)")
    assert not list(text.functions(b"loa"))
