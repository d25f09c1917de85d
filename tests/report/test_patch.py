from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.findings import Edit, Finding, Fix, Review, Safety, Severity, Span
from ptopt.report.patch import Positions, fix_diff, fix_hunks, hunks, unified_diff
from ptopt.verify import EditError, apply_edits


def edit(text: str, old: str, new: str) -> Edit:
    start = len(text[: text.index(old)].encode())
    return Edit(start, start + len(old.encode()), new)


def test_a_hunk_holds_the_changed_lines_only() -> None:
    text = "a\nb\nc\nd\n"
    (hunk,) = hunks(Positions(text), [edit(text, "b\nc", "b\nC")])
    assert (hunk.start, hunk.old, hunk.new) == (3, ("c\n",), ("C\n",))


def test_an_inserted_line_has_no_old_line() -> None:
    text = "import os\nx = 1\n"
    (hunk,) = hunks(Positions(text), [Edit(10, 10, "import torch\n")])
    assert (hunk.start, hunk.old, hunk.new) == (2, (), ("import torch\n",))


def test_distant_edits_are_two_hunks_and_neighbours_one() -> None:
    text = "".join(f"{n}\n" for n in range(1, 10))
    far = hunks(Positions(text), [edit(text, "8", "x"), edit(text, "2", "y")])
    assert [hunk.start for hunk in far] == [2, 8]
    near = hunks(Positions(text), [edit(text, "2", "x"), edit(text, "3", "y")])
    assert [(hunk.start, hunk.new) for hunk in near] == [(2, ("x\n", "y\n"))]


def test_a_bad_edit_is_refused() -> None:
    with pytest.raises(EditError):
        hunks(Positions("abc\n"), [Edit(2, 9, "")])


def test_columns_in_bytes_and_in_characters() -> None:
    positions = Positions("é\nüx\n")
    assert positions.bytes_at(5) == (2, 3)
    assert positions.characters_at(5) == (2, 2)
    assert positions.bytes_at(7) == (3, 1)


LINE = st.text(alphabet="ab é\r", max_size=4)


@given(st.data())
def test_git_makes_the_same_of_the_patch(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = data.draw(st.lists(LINE, max_size=12))
    text = "\n".join(lines) + data.draw(st.sampled_from(["", "\n"]))
    bounds = [0]
    for character in text:
        bounds.append(bounds[-1] + len(character.encode()))
    cuts = sorted(data.draw(st.lists(st.sampled_from(bounds), min_size=2, max_size=6)))
    new = st.text(alphabet="abc\n", max_size=6)
    edits = [Edit(a, b, data.draw(new)) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b]
    wanted = apply_edits(text, edits)
    patch = unified_diff("f.py", text, edits, context=data.draw(st.sampled_from([1, 3])))
    assert (patch == "") == (wanted == text)
    if not patch or not text or not wanted:  # git tells an empty file by /dev/null
        return
    folder: Path = tmp_path_factory.mktemp("patch")
    (folder / "f.py").write_bytes(text.encode())
    command = ["git", "apply", "--whitespace=nowarn", "--unidiff-zero", "-"]
    done = subprocess.run(command, cwd=folder, input=patch.encode(), capture_output=True, check=False)
    assert done.returncode == 0, (patch, done.stderr)
    assert (folder / "f.py").read_bytes() == wanted.encode()


def test_an_edit_that_cuts_a_character_costs_the_diff_only() -> None:
    fix = Fix(Safety.SAFE, (Edit(1, 2, "x"),))
    finding = Finding(
        "PTO101", "n", "f", Severity.LOW, "a.py", Span(1, 1), "", "m", "w", 0.5, "0" * 32, fix=fix
    )
    review = Review(findings=(finding,), sources={"a.py": "é\n"})
    assert fix_diff(review, finding) == ""
    assert fix_hunks(review, finding) == []
