"""Fixes in notebooks: the strings of one cell change, and no other byte of the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptopt.change import ChangedFile, Hunk, Status, whole_file
from ptopt.config import Config
from ptopt.findings import Edit, Review, Safety
from ptopt.fixes import fix_file
from ptopt.github.comment import suggestion
from ptopt.notebook_edits import (
    NotebookEditError,
    can_be_written,
    code_of_cells,
    edited_notebook,
    reviewed,
)
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.source.notebook import code_cells
from ptopt.verify import apply_edits

SLOW = "torch.log(torch.softmax(x, dim=-1))"
FAST = "torch.log_softmax(x, dim=-1)"


def notebook(*sources: str, listed: bool = True) -> dict[str, Any]:
    def cell(source: str) -> dict[str, Any]:
        written = source.splitlines(keepends=True) if listed else source
        outputs = [{"output_type": "stream", "name": "stdout", "text": ["1.50 \u2713\n"]}]
        return {
            "cell_type": "code", "execution_count": 3, "metadata": {"x": 1e-05}, "outputs": outputs, "source": written,
        }  # fmt: skip

    title = {"cell_type": "markdown", "metadata": {}, "source": ["# T\u00eftle\n"]}
    return {"cells": [title, *map(cell, sources)], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def review(file: ChangedFile) -> Review:
    return review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=False, one_per_cause=False)


def edited(data: bytes, old: str, new: str) -> bytes:
    code = reviewed(data).text.encode()
    at = code.index(old.encode())
    return edited_notebook(data, [Edit(at, at + len(old.encode()), new)])


def refused(data: bytes, old: str, new: str) -> str:
    with pytest.raises(NotebookEditError) as caught:
        edited(data, old, new)
    code = reviewed(data).text.encode()
    at = code.index(old.encode())
    assert not can_be_written(reviewed(data), [Edit(at, at + len(old.encode()), new)])
    return str(caught.value)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_fixes_change_their_strings_alone(
    listed: bool, indent: int | str | None, ascii_only: bool, ending: str, line_end: str
) -> None:
    head, tail = "import torch\n\n\ndef f(x):\n\t'''gr\u00f6\u00dfer \U0001f600 \"\\n'''", "# \u00fc\n"
    cells = "%matplotlib inline", f"{head}\n\treturn {SLOW}  {tail}", f"y = {SLOW}", "print(1)"
    text = json.dumps(notebook(*cells, listed=listed), indent=indent, ensure_ascii=ascii_only) + ending
    data = text.replace("\n", line_end).encode()
    result = fix_file(whole_file("nb.ipynb", data), review, unsafe=False)
    assert [f.rule for f in result.fixed] == ["PTO407", "PTO407"]
    assert result.after == data.replace(SLOW.encode(), FAST.encode())


def test_the_line_ends_of_the_code_stay() -> None:
    data = json.dumps(notebook("a = 1\r\nb = 2\r\nc = 3", "d = 4"), indent=1).encode()
    after = code_of_cells(edited(data, "b = 2\r\n", "b = 3\nb = 4\n"))
    assert after[2] == "a = 1\r\nb = 3\r\nb = 4\r\nc = 3"
    assert code_of_cells(edited(data, "c = 3\n", ""))[2] == "a = 1\r\nb = 2"


def test_a_line_more_or_less_is_a_string_more_or_less() -> None:
    data = json.dumps(notebook("a = 1\nb = 2\nc = 3", "d = 4"), indent=1).encode()

    def written(*sources: str) -> bytes:
        return json.dumps(notebook(*sources), indent=1).encode()

    assert edited(data, "b = 2\n", "") == written("a = 1\nc = 3", "d = 4")
    assert edited(data, "a = 1\nb = 2\n", "") == written("c = 3", "d = 4")
    assert edited(data, "c = 3\n", "") == written("a = 1\nb = 2", "d = 4")
    assert edited(data, "b = 2\nc = 3\n", "") == written("a = 1", "d = 4")
    assert edited(data, "c = 3\n", "c = 4\ne = 5\n") == written("a = 1\nb = 2\nc = 4\ne = 5", "d = 4")
    assert edited(data, "d = 4", "d = 5\ne = '\u00e9'") == written(
        "a = 1\nb = 2\nc = 3", "d = 5\ne = '\u00e9'"
    )
    assert edited(data, " = 1\nb = 2\nc", "") == written("a = 3", "d = 4")
    code = reviewed(data).text.encode()
    behind = code.index(b"c = 3\n") + 6
    assert edited_notebook(data, [Edit(behind, behind, "e = 5\n")]) == written(
        "a = 1\nb = 2\nc = 3\ne = 5", "d = 4"
    )
    assert "nothing would be left" in _why(data, Edit(code.index(b"d = 4"), code.index(b"d = 4") + 5, ""))


def _why(data: bytes, *edits: Edit) -> str:
    with pytest.raises(NotebookEditError) as caught:
        edited_notebook(data, edits)
    return str(caught.value)


def test_escapes_that_no_edit_touches_stay() -> None:
    text = '{"cells": [{"cell_type": "code", "source": ["s = \\"\\u00E9\\/\\u0041\\"; x = 1\\n",\n "y = 2"]}], "nbformat": 4}'
    after = edited(text.encode(), "x = 1", "x = '\u00fc'").decode()
    assert after == text.replace("x = 1", "x = '\\u00fc'")  # the file escapes what is not ASCII
    plain = text.replace("\\u00E9", "\u00e9")
    assert edited(plain.encode(), "x = 1", "x = '\u00fc'").decode() == plain.replace("x = 1", "x = '\u00fc'")


def test_edits_that_stay_advice() -> None:
    magics = "%time a = 1\nb = 2\n!ls\nc = 3"
    timed = "\n%%time\ne = 5"
    data = json.dumps(notebook(magics, timed, "f = 6"), indent=1).encode()
    assert "not Python" in refused(data, "pass", "a")
    assert "not Python" in refused(data, "b = 2\n0", "")
    top = reviewed(data).cells[1].first
    at_top = len("\n".join(reviewed(data).text.split("\n")[: top - 1]).encode()) + 1
    assert "not Python" in _why(
        data, Edit(at_top, at_top, "g = 7")
    )  # nothing may come to stand above `%%time`
    code = reviewed(data).text
    assert "not in one cell" in refused(data, code[code.index("c = 3") : code.index("e = 5") + 5], "")
    at = code.index("b = 2"), code.index("f = 6")
    assert "several cells" in _why(data, *(Edit(a, a + 1, "g") for a in at))
    assert "not in one cell" in _why(data, Edit(0, 0, "import torch\n"))
    empty = json.dumps(notebook("a = 1", ""), indent=1).encode()
    end = len(reviewed(empty).text)
    assert "is empty" in _why(empty, Edit(end, end, "b = 2"))
    foreign = reviewed(json.dumps(notebook("a = 1", "%%bash\nls", "b = ("), indent=1).encode())
    assert len(foreign.blanked) == 3
    for line in foreign.blanked:
        start = len("\n".join(foreign.text.split("\n")[: line - 1])) + 1
        assert not can_be_written(foreign, [Edit(start, start, "x")])


def test_imports_stay_for_cells_to_come() -> None:
    first, second = (
        "import torch\nfrom torch import log",
        "def f(x):\n    return log(torch.softmax(x, dim=-1))",
    )
    data = json.dumps(notebook(first, second), indent=1).encode()
    result = fix_file(whole_file("a.ipynb", data), review, unsafe=False)
    assert result.after == data.replace(b"log(torch.softmax(x, dim=-1))", b"torch.log_softmax(x, dim=-1)")


def test_a_comment_on_a_notebook_has_no_suggestion() -> None:
    data = json.dumps(notebook(f"import torch\ny = {SLOW}"), indent=1).encode()
    lines = data.count(b"\n") + 1
    added = frozenset(range(1, lines + 1))
    file = ChangedFile("a.ipynb", None, Status.ADDED, (Hunk(1, lines),), added, data)
    result = review_files([file], config=Config(), facts=NO_FACTS, limit_to_change=True)
    (found,) = result.findings
    assert found.fix is not None and (found.fix.safety, found.fix.postable) == (Safety.SAFE, False)
    assert suggestion(result, file, found) is None


def test_a_notebook_on_one_line_is_left_alone_on_a_branch() -> None:
    """The lines of a change tell nothing of a notebook that has all its code on one line."""
    text = json.dumps(notebook(f"import torch\ny = {SLOW}"))
    file = whole_file("a.ipynb", text.encode())
    shown = frozenset((f.rule, f.span.start) for f in review(file).findings)
    assert len(shown) == 1 and fix_file(file, review, unsafe=False).fixed
    assert fix_file(file, review, unsafe=False, shown=shown).after == text.encode()


LINES = st.sampled_from(
    ["a = 1", "b = '\u00e9\U0001f600'", 'c = "\\t\\\\n\\""', "if a:\n\td = 2  # \t", "", "%time f()", "!ls", "e = ('''\n\n''')"]
)  # fmt: skip
NEW = st.sampled_from(
    ["", "x", "x = 1\n", "\n", "x = '\u00fc\"\\\\'", "\tx\n\ty\n", "x = (\n    1,\n)", "\U0001f600"]
)


@settings(deadline=None, max_examples=200)
@given(
    cells=st.lists(st.lists(LINES, min_size=1, max_size=4).map("\n".join), min_size=1, max_size=4),
    ends=st.sampled_from(["", "\n"]),
    inner=st.sampled_from(["\n", "\r\n"]),
    listed=st.booleans(),
    indent=st.sampled_from([None, 0, 1, 4, "\t"]),
    ascii_only=st.booleans(),
    outer=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    new=NEW,
    draw=st.data(),
)
def test_an_edit_changes_only_its_cell(
    cells: list[str],
    ends: str,
    inner: str,
    listed: bool,
    indent: int | str | None,
    ascii_only: bool,
    outer: str,
    mark: bytes,
    new: str,
    draw: st.DataObject,
) -> None:
    document = notebook(*((cell + ends).replace("\n", inner) for cell in cells), listed=listed)
    written = json.dumps(document, indent=indent, ensure_ascii=ascii_only).replace("\n", outer)
    data = mark + written.encode()
    parsed = reviewed(data)
    text = parsed.text
    cell = draw.draw(st.sampled_from(parsed.cells))
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    places = st.integers(max(0, starts[cell.first - 1] - 2), min(starts[cell.last] + 2, len(text)))
    start, end = sorted((draw.draw(places), draw.draw(places)))
    edit = Edit(len(text[:start].encode()), len(text[:end].encode()), new)
    try:
        after = edited_notebook(data, [edit])
    except NotebookEditError:
        return
    touched = range(text.count("\n", 0, start) + 1, text.count("\n", 0, max(start, end - 1)) + 2)
    assert not set(touched) & set(parsed.blanked)
    # The text after the edit holds the new cell between what was above it and what was below it.
    old_lines, new_lines = text.split("\n"), apply_edits(text, [edit]).split("\n")
    before, behind = cell.first - 1, len(old_lines) - cell.last
    assert old_lines[:before] == new_lines[:before]
    assert old_lines[cell.last :] == new_lines[len(new_lines) - behind :]
    expected = "\n".join(new_lines[before : len(new_lines) - behind])
    found, known = code_of_cells(after), code_of_cells(data)
    changed = found.pop(cell.number)
    known.pop(cell.number)
    assert found == known
    if not parsed.blanked:  # else the text is not what the notebook says
        plain = expected.replace("\r", "")
        assert changed.replace("\r", "") in (plain, f"{plain}\n")
    assert _around(after, cell.number) == _around(data, cell.number)


def _around(data: bytes, number: int) -> tuple[str, str]:
    text = data.decode()
    strings = code_cells(data.decode("utf-8-sig"))[number]
    shift = len(text) - len(data.decode("utf-8-sig"))
    return text[: strings[0].start + shift], text[strings[-1].end + shift :]
