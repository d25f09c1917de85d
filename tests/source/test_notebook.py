"""Notebooks: the code of the cells, and the JSON line of each line of it."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptopt.source.decode import Parsed, parse_python
from ptopt.source.notebook import cell_lines, parse_notebook, spread
from ptopt.syntax import ParseError


def cell(source: object, kind: str = "code", **more: object) -> dict[str, object]:
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def notebook(*cells: object, **more: object) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}


def parse(content: object, indent: int | None = 1) -> Parsed:
    text = content if isinstance(content, str) else json.dumps(content, indent=indent)
    return parse_python("nb.ipynb", text.encode("utf-8", "surrogatepass"))


def reason(content: object) -> str:
    with pytest.raises(ParseError) as caught:
        parse(content)
    return str(caught.value)


PICTURE = {"output_type": "display_data", "data": {"image/png": "iVBOR" * 50_000}, "n": [1e999, float("nan")]}
REAL = notebook(
    cell(["# Title\n", "for x in y:\n"], "markdown"),
    cell(
        [
            "%matplotlib inline\n",
            "import torch\n",
            "for batch in loader:\n",
            "    loss = model(batch)\n",
            '    print("é\\n")',
        ],
        outputs=[PICTURE],
        execution_count=3,
    ),
    cell(["%%bash\n", "for f in *; do echo 'it; done"]),
    cell(["%%time\n", "total = loss.item()\n", "await done()"]),
    cell("one = 1\ntwo = 2\n"),
    cell([]),
    metadata={"kernelspec": {"language": "python"}, "language_info": {"name": "python"}},
)


def test_every_statement_maps_to_the_json_line_that_holds_it() -> None:
    text = json.dumps(REAL, indent=1, ensure_ascii=False)
    parsed = parse(text)
    assert parsed.head_lines is not None
    rows = text.split("\n")
    lines = parsed.text.split("\n")
    assert len(parsed.head_lines) == len(lines)
    assert list(parsed.head_lines) == sorted(parsed.head_lines)
    told = {lines[i]: rows[head - 1] for i, head in enumerate(parsed.head_lines) if lines[i]}
    for code in (
        "import torch",
        "    loss = model(batch)",
        "total = loss.item()",
        "await done()",
        "one = 1",
        "two = 2",
    ):
        assert json.dumps(code)[1:-1] in told[code]
    assert told["one = 1"] == told["two = 2"]
    assert parsed.lost == ()
    assert "echo" not in parsed.text
    assert "Title" not in parsed.text
    assert {rows[parsed.head_lines[number - 1] - 1].strip()[:8] for number in parsed.blanked} >= {
        '"%matplo',
        '"%%bash\\',
        '"%%time\\',
    }
    assert [type(node) for node in parsed.tree.body[:3]] == [ast.Pass, ast.Import, ast.For]


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_layout_of_the_json_changes_the_lines_alone(indent: int | None) -> None:
    parsed = parse(REAL, indent)
    assert _code(parsed) == _code(parse(REAL))
    if indent is None:
        assert set(parsed.head_lines or ()) == {1}


def _code(parsed: Parsed) -> list[str]:
    return [line for line in parsed.text.split("\n") if line.strip()]


def test_source_lines_stand_at_their_json_lines() -> None:
    usual = notebook(*(c for c in REAL["cells"] if isinstance(c["source"], list)))
    parsed = parse(usual)
    head = json.dumps(usual, indent=1).split("\n")
    for number, line in enumerate(parsed.text.split("\n"), 1):
        if line.strip() not in ("", "pass"):
            assert json.dumps(line)[1:-1] in head[number - 1]
            assert parsed.head_lines is not None and parsed.head_lines[number - 1] == number


def test_crlf_and_a_byte_order_mark() -> None:
    text = json.dumps(REAL, indent=1)
    plain = parse(text)
    windows = parse_python("a.ipynb", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert (windows.text, windows.head_lines, windows.encoding) == (plain.text, plain.head_lines, "utf-8-sig")
    inside = parse(notebook(cell(["a = 1\r\n", "b = 2\r\n"])))
    assert "a = 1\r\nb = 2\r\n" in inside.text


def test_list_items_need_not_be_lines() -> None:
    parsed = parse(notebook(cell(["a = ", "1\nb = 2", "\n", "", "c = 3"])))
    assert [ast.unparse(node) for node in parsed.tree.body] == ["a = 1", "b = 2", "c = 3"]
    assert parsed.head_lines is not None
    numbered = zip(parsed.text.split("\n"), parsed.head_lines, strict=True)
    heads = [head for line, head in numbered if line.strip()]
    assert [head - heads[0] for head in heads] == [0, 1, 4]


def test_a_broken_cell_loses_only_itself() -> None:
    content = notebook(
        cell("a = 1"),
        cell(["x = 1\n", "print x\n"]),
        cell("!ls\nb = 2"),
        cell("c = (\n"),
        cell("d = '\ud800'"),
        cell("e = 5"),
    )
    text = json.dumps(content, indent=1)
    parsed = parse(text)
    assert [ast.unparse(node) for node in parsed.tree.body] == ["a = 1", "0", "b = 2", "e = 5"]
    at = text.split("\n").index('    "print x\\n"') + 1
    assert parsed.lost[0].startswith("cell 2: not Python 3: Missing parentheses")
    assert parsed.lost[0].endswith(f"(line {at})")
    assert [told.split(":")[0] for told in parsed.lost] == ["cell 2", "cell 4", "cell 5"]
    parsed.text.encode()


def test_a_notebook_without_a_cell_that_parses_is_one_reason() -> None:
    assert reason(notebook(cell("print x"), cell("exec 'a'"))).startswith(
        "no cell parses; cell 1: not Python 3"
    )


@pytest.mark.parametrize(
    "magic", ["%%javascript", "%%html", "%%writefile a.py", "%%sql", "%md", "%sql", "\n%%capture\n%%bash"]
)
def test_cells_in_another_language_are_blanked_whole(magic: str) -> None:
    parsed = parse(notebook(cell("a = 1"), cell(f"{magic}\n<b>it's</b> {{"), cell("b = 2")))
    assert [ast.unparse(node) for node in parsed.tree.body] == ["a = 1", "b = 2"]
    assert parsed.lost == ()
    assert len(parsed.blanked) == magic.count("\n") + 2


@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n 3", "%%capture out"])
def test_cell_magics_around_python_lose_only_their_line(magic: str) -> None:
    parsed = parse(notebook(cell(f"{magic}\nb = 2")))
    (magic_line,) = parsed.blanked
    assert parsed.tree.body[-1].lineno == magic_line + 1


def test_no_code_is_no_error() -> None:
    assert parse(notebook()).tree.body == []
    assert parse(notebook(cell("# Hi", "markdown"), {"cell_type": "code"})).tree.body == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"worksheets": [], "nbformat": 3}, "nbformat 3; only nbformat 4 is read"),
        (notebook(nbformat="four"), "only nbformat 4"),
        (notebook(nbformat=True), "no nbformat"),
        ({"cells": []}, "no nbformat"),
        (notebook(nbformat=float("nan")), "only nbformat 4"),
        (notebook(metadata={"language_info": {"name": "R"}}), "in r, not in Python"),
        (notebook(metadata={"kernelspec": {"language": "julia"}}), "in julia, not in Python"),
        (notebook(cell(3)), "the source of cell 1 is not a string"),
        (notebook(cell(["a", 3])), "the source of cell 1 is not a string"),
        (notebook(cell("a", kind=3)), "not a string"),  # type: ignore[arg-type]
        (notebook("a"), "cell 1 is not an object"),
        (notebook(cells={}), "'cells' is not a list"),
        ([], "the file is not an object"),
        ("", "not valid JSON: the file ends early"),
        ('{"nbformat": 4', "not valid JSON"),
        ('{"nbformat": 4}}', "text behind the end"),
        ('{"cells": [], "cells": [], "nbformat": 4}', "has the key 'cells' twice"),
        ('{"cells": [{"source": "a", "source": "b"}], "nbformat": 4}', "cell 1 has the key 'source' twice"),
        ('{"metadata": ' + "[" * 100_000, "nested too deeply"),
        ('{"nbformat": ' + "4" * 100_000 + "}", "only nbformat 4"),
        ('{"cells": [{"source": "a\nb"}]}', "Invalid control character"),
    ],
)
def test_what_is_no_python_notebook_is_refused(content: object, told: str) -> None:
    assert told in reason(content)


def test_a_line_that_only_a_generator_writes_loses_its_cell() -> None:
    picture = ["data:image/png;base64," + "A" * 200_000]
    parsed = parse(
        notebook(cell(picture, "markdown"), cell(["x = '"] + ["a" * 1000] * 200 + ["'"]), cell("b = 2"))
    )
    assert [ast.unparse(node) for node in parsed.tree.body] == ["b = 2"]
    assert "cell 2: a line of more than 100,000 characters" in parsed.lost[0]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ParseError, match="not UTF-8 at byte 2"):
        parse_python("a.ipynb", b'{"\xff": 1}')


def check_any(data: bytes) -> None:
    try:
        parsed = parse_python("a.ipynb", data)
    except ParseError:
        return
    assert parsed.head_lines is not None
    assert len(parsed.head_lines) == parsed.text.count("\n") + 1
    assert all(1 <= line <= data.count(b"\n") + 1 for line in parsed.head_lines)


SMALL = json.dumps(
    notebook(*(c for c in REAL["cells"] if "outputs" not in c), cell("!ls\nx ="), cell("ok = 1")), indent=1
)


@settings(deadline=None)
@given(
    st.integers(0, len(SMALL)),
    st.integers(0, 60),
    st.sampled_from(["", "\\n", '"', "[", "{", ",", "\n", "\\r", "\\u0000", "null"]),
)
def test_truncated_and_mutated_notebooks_give_a_tree_or_a_reason(cut: int, gap: int, put: str) -> None:
    check_any(SMALL[:cut].encode())
    check_any((SMALL[:cut] + put + SMALL[cut + gap :]).encode())


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    "%%bash\n",
                    "%x\n",
                    "!a\n",
                    "(",
                    "'''",
                    "\\",
                    "\n",
                    "x = 1\n",
                    "\r",
                    "\0",
                    "\ud800",
                    "if x:\n",
                    "  ",
                ]
            )
        )
    )
)
def test_any_cells_give_a_tree_or_a_reason(sources: list[list[str]]) -> None:
    check_any(json.dumps(notebook(*(cell(source) for source in sources), cell("ok = 1"))).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["cells", "source", "cell_type", "nbformat", "metadata", "language_info", "name"]
            ),
            inner,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_any_json_gives_a_tree_or_a_reason(value: object) -> None:
    check_any(json.dumps(value).encode())
    check_any(json.dumps({"cells": value, "nbformat": 4}).encode())
    check_any(
        json.dumps(
            {"cells": [{"source": value, "cell_type": "code"}], "nbformat": 4, "metadata": value}
        ).encode()
    )


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_tree_or_a_reason(data: bytes) -> None:
    check_any(data)


def test_a_notebook_is_spread_over_a_line_for_each_line_of_code() -> None:
    cells = [
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "source": "a = 1\n\nb = '\u00e9'\n"},
        {"cell_type": "code", "source": ["%time\n", "c = 2"]},
        {"cell_type": "code", "source": []},
    ]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()
    found = spread(data)
    assert found is not None
    text, lines = found
    before, after = parse_notebook(data), parse_notebook(text)
    assert ast.dump(after.tree) == ast.dump(before.tree)
    assert set(lines.values()) == {1} and after.head_lines == tuple(range(1, len(after.head_lines or ()) + 1))
    assert sorted(cell_lines(text).values()) == [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)]


def test_a_notebook_that_cannot_be_spread_stays_as_it_is() -> None:
    cells = [{"cell_type": "code", "source": "a = 1\r"}]
    assert spread(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()) is None
