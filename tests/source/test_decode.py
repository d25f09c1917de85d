"""Bytes in, a tree or one reason out; lines and byte offsets are those of the file."""

from __future__ import annotations

import ast
import sys
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptopt.source.decode import Parsed, parse_python
from ptopt.syntax import MAX_LINE, ParseError


def parse(data: bytes | str) -> Parsed:
    return parse_python("train.py", data.encode() if isinstance(data, str) else data)


def reason(data: bytes | str) -> str:
    with pytest.raises(ParseError) as caught:
        parse(data)
    return str(caught.value)


def last_line(parsed: Parsed) -> int:
    return parsed.tree.body[-1].lineno


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"x = 1\n", "utf-8"),
        (b"\xef\xbb\xbfx = '\xc3\xa9'\r\n", "utf-8-sig"),
        (b"\xef\xbb\xbf# coding: utf-8\nx = 1\n", "utf-8-sig"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "iso8859-1"),
        (b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n", "cp1252"),
        ("# coding: shift_jis\nx = 'ソース'\n".encode("shift_jis"), "shift_jis"),
        (b"decoding = 1\n", "utf-8"),
        (b"", "utf-8"),
    ],
)
def test_the_text_goes_back_to_the_same_bytes(data: bytes, encoding: str) -> None:
    parsed = parse(data)
    assert parsed.encoding == encoding
    assert parsed.text.encode(parsed.encoding) == data
    assert parsed.head_lines is None
    assert parsed.blanked == ()
    assert parsed.lost == ()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"x = 1\ny = '\xe9'\n", "not UTF-8 at byte 11, and no encoding is declared (line 2)"),
        (b"\xef\xbb\xbfx = '\xe9'\n", "not utf-8-sig at byte 8 (line 1)"),
        (b"x = 1\0\n", "NUL bytes"),
        ("x = 1\n".encode("utf-16"), "UTF-16"),
        (b"# coding: klingon\n", "bad encoding declaration: unknown encoding"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "bad encoding declaration"),
        (b"# coding: rot13\n", "does not extend ASCII"),
        (b"# coding: idna\n", "does not extend ASCII"),
        (b"# coding: utf-7\nx = 1\n", "does not extend ASCII"),
        (b"# coding: unicode_escape\nx = 1\\nimport os\n", "does not extend ASCII"),
        (b"# coding: ascii\nx = '\xe9'\n", "not ascii at byte 21 (line 2)"),
        (b"x = 1\ry = 2\n", "a carriage return alone ends a line, which shifts line numbers (line 1)"),
        (b"x = 1\n'''\ra\r\n'''\n", "(line 2)"),
        (b"x = 1\r\r\n", "carriage return"),
        (b"x = 1\n" * 400_000, "larger than 2 MB"),
        (
            b"x = 1\ny = '" + b"a" * MAX_LINE + b"'\n",
            "more than 100,000 characters, treated as generated (line 2)",
        ),
        ("x = 1\nprint x\n", "not Python 3: Missing parentheses in call to 'print'"),
        ("try:\n    f()\nexcept A, e as x:\n    pass\n", "(line 3)"),
        ("mode = 0777\n", "not Python 3: leading zeros"),
        ("-" * 90_000 + "1", "nested too deeply"),
        ("(" * 500, "(line 1)"),
        ("if x:\n\ty\n        z\n", "(line 3)"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(data: bytes | str, told: str) -> None:
    assert told in reason(data)


def test_a_syntax_error_names_line_message_and_interpreter() -> None:
    running = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    told = reason("x = 1\nfor in y:\n    pass\n")
    assert told == f"does not parse with {running}: invalid syntax (line 2)"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the syntax is known to this interpreter")
def test_newer_syntax_is_refused_with_its_line() -> None:
    told = reason("x = 1\n\ny = t'{x}'\n")
    assert "does not parse with Python" in told
    assert told.endswith("(line 3)")


def test_the_reason_is_one_printable_line() -> None:
    error = ParseError("bad\n\x1b[31m" + "a" * 500, 7)
    assert str(error).isprintable()
    assert len(str(error)) < 200
    assert (error.line, str(error)[-9:]) == (7, " (line 7)")


@pytest.mark.parametrize("inside", ["\f", "\u2028", "\u2029", "\x85", "\v", "\x1c"])
def test_what_other_tools_call_a_line_end_shifts_nothing(inside: str) -> None:
    data = f"a = '{inside}'\n# {inside}\n{inside if inside == chr(12) else ''}\nb = 2\n"
    assert last_line(parse(data)) == 4


def test_crlf_is_kept_and_counted_once() -> None:
    parsed = parse(b"a = 1\r\nif a:\r\n    b = 2\r\n")
    assert parsed.text == "a = 1\r\nif a:\r\n    b = 2\r\n"
    assert last_line(parsed) == 2


def test_nothing_is_printed_and_the_warning_filters_are_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        parse("x = '\\d'\nassert (x, 'no')\n")
        assert warnings.filters == before
    assert seen == []
    assert capfd.readouterr() == ("", "")


MAGIC_FILE = """\
import torch
%matplotlib inline
!pip install "a [thing \\
    --quiet
?x
if torch.cuda.is_available():
    %cd é
    model?
    files = !ls
value = ("%s"
    % torch)
text = '''
%not a magic
'''
pip install timm
x?
get_ipython().run_line_magic("time", "f()")
last = 1
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_magics_are_blanked_and_nothing_else_moves(end: str) -> None:
    original = MAGIC_FILE.replace("\n", end)
    parsed = parse(original)
    assert parsed.blanked == (2, 3, 4, 5, 7, 8, 9, 15, 16)
    before, after = original.split("\n"), parsed.text.split("\n")
    assert [len(line.encode()) for line in before] == [len(line.encode()) for line in after]
    for number, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        if number in parsed.blanked:
            assert new.strip() in ("pass", "0", "")
            assert new[: len(new) - len(new.lstrip())].startswith(old[: len(old) - len(old.lstrip())])
            assert new.endswith("\r") == old.endswith("\r")
        else:
            assert new == old
    branch = parsed.tree.body[4]
    assert isinstance(branch, ast.If)
    assert [type(node) for node in branch.body] == [ast.Pass, ast.Pass, ast.Pass]
    assert last_line(parsed) == 18


def test_a_cell_magic_of_a_plain_file_reaches_to_the_next_cell() -> None:
    parsed = parse("a = 1\n# %%\n%%bash\nfor f in *; do\n  echo 'it\n# %%\n%%time\nb = 2\n")
    assert parsed.blanked == (3, 4, 5, 7)
    assert [ast.unparse(node) for node in parsed.tree.body] == ["a = 1", "pass", "pass", "b = 2"]


def test_a_databricks_export_needs_no_blanking() -> None:
    parsed = parse("# Databricks notebook source\n# MAGIC %sql select 1\n\n# COMMAND ----------\n\nx = 1\n")
    assert parsed.blanked == ()
    assert last_line(parsed) == 6


def test_the_error_is_the_first_one_when_no_magic_explains_it() -> None:
    assert "(line 2)" in reason("x = 1\ny = = 2\n")
    assert "(line 3)" in reason("%cd x\ny = 1\nz = = 2\n")


def test_the_same_bytes_give_the_same_tree() -> None:
    assert ast.dump(parse(MAGIC_FILE).tree, include_attributes=True) == ast.dump(
        parse(MAGIC_FILE).tree, include_attributes=True
    )


SIGNS = (
    "%%bash",
    "%x",
    "!ls",
    "x?",
    "?",
    "'''",
    '"""',
    "'",
    "\\",
    "(",
    ")",
    "\n",
    "\r\n",
    "\r",
    " ",
    "    ",
    "\t",
)
WORDS = (
    "\f",
    "x = 1",
    "if x:",
    "pass",
    "# coding: ",
    "utf-7",
    "é",
    "\u2028",
    "\ud800",
    "\0",
    "print x",
    "%",
    "#",
)
PIECES = st.sampled_from((*SIGNS, *WORDS))


def outcome(path: str, data: bytes) -> Parsed | str:
    try:
        return parse_python(path, data)
    except ParseError as error:
        return str(error)


def test_a_chain_of_attributes_crashes_no_interpreter() -> None:
    got = outcome("a.py", b"a" + b".b" * 40_000)  # Python 3.10 builds that tree, later ones refuse
    assert got == "nested too deeply to be parsed" or isinstance(got, Parsed)


def check_any(path: str, data: bytes) -> None:
    parsed = outcome(path, data)
    if isinstance(parsed, str):
        assert parsed.isprintable()
        assert parsed
        return
    lines = parsed.text.split("\n")
    end = len(lines)
    for node in ast.walk(parsed.tree):
        line = getattr(node, "lineno", 1)
        assert 1 <= line <= end
    assert all(1 <= number <= end for number in parsed.blanked)
    if not parsed.blanked:
        assert parsed.text.encode(parsed.encoding) == data


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf")
@example(b"# coding: \xff\n")
def test_any_bytes_give_a_tree_or_a_reason(data: bytes) -> None:
    check_any("a.py", data)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_mix_of_magics_quotes_and_line_ends_gives_a_tree_or_a_reason(text: str) -> None:
    check_any("a.py", text.encode("utf-8", "surrogatepass"))


@settings(deadline=None)
@given(st.integers(0, len(MAGIC_FILE)), st.integers(0, 40))
def test_truncated_and_gapped_sources_give_a_tree_or_a_reason(cut: int, gap: int) -> None:
    check_any("a.py", MAGIC_FILE[:cut].encode())
    check_any("a.py", (MAGIC_FILE[:cut] + MAGIC_FILE[cut + gap :]).encode())
