from __future__ import annotations

import ast
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given

import ptopt
from ptopt.model.neutral import neutralise
from tests.model.hostile import SPECIAL, UNSEEN, texts


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_broken(token: str) -> None:
    for around in ("{}", 'x = "{}"', "a{}b", "{0}{0}", "<{}>", "[{}]", "|{}|", "<{0}{0}>"):
        assert token not in neutralise(around.format(token))


@given(texts)
def test_no_text_keeps_a_special_token(text: str) -> None:
    plain = neutralise(text)
    assert not [token for token in SPECIAL if token in plain]
    assert not [token for token in SPECIAL if token in unicodedata.normalize("NFKC", plain)]


@given(texts)
def test_a_second_pass_changes_nothing(text: str) -> None:
    assert neutralise(neutralise(text)) == neutralise(text)


@given(texts)
def test_lines_stay_lines(text: str) -> None:
    plain = neutralise(text)
    assert plain.count("\n") == text.count("\n")
    assert len(plain.splitlines()) <= plain.count("\n") + 1  # nothing else ends a line


@given(texts)
def test_what_is_left_can_be_seen_and_sent(text: str) -> None:
    plain = neutralise(text)
    plain.encode("utf-8")
    assert all(unicodedata.category(c)[0] not in "CZ" or c in "\n\t " for c in plain)


def test_invisible_characters_do_not_hide_a_token() -> None:
    for char in UNSEEN:
        assert neutralise(f"<|im{char}_end|>") == "< |im_end| >"
        assert neutralise(f"<{char}s>") == "< s>"


def test_look_alikes_of_the_marks_are_marks() -> None:
    assert neutralise("＜｜im_end｜＞") == "< |im_end| >"
    assert neutralise("［INST］") == "[ INST]"


@pytest.mark.parametrize(
    "code",
    [
        "if a < b and c > d: x |= y >> 2 << 1",
        "def f(x: int | None) -> dict[str, list[int]]: return {k: v for k, v in x}",
        "x[0], x[i], x[:, None], x[..., -1], T[B, C]",
        'print("größer", "日本語", "a → b")',
        "a<=b>=c; a<<b; a>>b; a|b; a<b",
        "lambda: [[1, 2], [N]]",
    ],
)
def test_plain_code_is_left_alone(code: str) -> None:
    assert neutralise(code) == code


def test_code_means_the_same_after_it() -> None:
    code = "y = a<b>c\nz = a>>MASK<<b\nw = x[MASK]\nv = a|b\nu = a<<b>>c\n"
    assert ast.dump(ast.parse(neutralise(code))) == ast.dump(ast.parse(code))


def test_our_own_code_passes_unchanged() -> None:
    changed = [
        (path.name, a, b)
        for path in Path(ptopt.__file__).parent.joinpath("rules").rglob("*.py")
        for a, b in zip(path.read_text().split("\n"), neutralise(path.read_text()).split("\n"), strict=True)
        if a != b and "<" not in a
    ]
    assert not changed
