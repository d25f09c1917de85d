"""Which files are read around a change."""

from __future__ import annotations

from ptopt.project.around import MOST_FILES, files_around


def test_neighbours_and_entry_points_come_first() -> None:
    paths = ["a/b/c/deep.py", "pkg/models/other.py", "pkg/train.py", "pkg/models/net.py", "README.md"]
    assert files_around(paths, {"pkg/models/net.py"}, most=2) == ["pkg/train.py", "pkg/models/other.py"]


def test_tests_and_the_changed_files_are_left_out() -> None:
    assert files_around(["tests/test_net.py", "net.py", "run.py"], {"net.py"}) == ["run.py"]


def test_the_number_is_bounded() -> None:
    assert len(files_around([f"f{i}.py" for i in range(500)], {"x.py"})) == MOST_FILES


def test_a_change_without_python_files_still_gets_an_order() -> None:
    assert files_around(["b.py", "a.py"], {"notes.ipynb"}) == ["a.py", "b.py"]
