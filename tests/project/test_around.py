"""Which files are read around a change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptopt.pathkind import folder_steps
from ptopt.project.around import MOST_BYTES, MOST_FILES, Neighbours, files_around


def test_neighbours_and_entry_points_come_first() -> None:
    paths = ["a/b/c/deep.py", "pkg/models/other.py", "pkg/train.py", "pkg/models/net.py", "README.md"]
    assert files_around(paths, {"pkg/models/net.py"}, most=2) == ["pkg/train.py", "pkg/models/other.py"]


def test_tests_and_the_changed_files_are_left_out() -> None:
    assert files_around(["tests/test_net.py", "net.py", "run.py"], {"net.py"}) == ["run.py"]


def test_the_number_is_bounded() -> None:
    assert len(files_around([f"f{i}.py" for i in range(500)], {"x.py"})) == MOST_FILES


def test_a_change_without_python_files_still_gets_an_order() -> None:
    assert files_around(["b.py", "a.py"], {"notes.ipynb"}) == ["a.py", "b.py"]


def test_the_order_is_that_of_a_look_at_every_folder() -> None:
    """Folders far away are not looked through; what stands in them would come behind the others."""
    names = ("net", "train", "loss", "main", "data")
    folders = ("", "a", "a/b", "a/b/c", "d", "d/e", "d/e/f/g")
    paths = [f"{folder}/{name}.py".lstrip("/") for folder in folders for name in names]
    for changed in ("a/b/net.py", "net.py", "d/e/f/g/train.py", "elsewhere/new.py"):
        everything = files_around(paths, {changed}, most=len(paths))
        assert len(everything) == len(set(paths) - {changed})
        for most in range(1, len(paths)):
            assert files_around(paths, {changed}, most) == everything[:most]


def test_a_single_file_has_the_neighbours_of_a_change_of_it() -> None:
    paths = [f"pkg/{'sub/' * (i % 3)}f{i}.py" for i in range(70)] + [
        "train.py",
        "tests/test_a.py",
        "pkg/a.ipynb",
    ]
    read: list[str] = []

    def content(path: str) -> bytes:
        read.append(path)
        return b"x" * (MOST_BYTES + 1 if path == "pkg/f3.py" else 1)

    neighbours = Neighbours(lambda: paths, content)
    for path in (
        "pkg/f0.py",
        "pkg/f6.py",
        "pkg/sub/f1.py",
        "train.py",
        "pkg/a.ipynb",
        "tests/test_a.py",
        "new.py",
    ):
        chosen = set(files_around(paths, {path})) - {"pkg/f3.py"}
        assert set(neighbours(path)) == chosen, path
    read.clear()
    assert neighbours("pkg/f0.py") and neighbours("pkg/f6.py")
    assert len(read) == len(set(read)), "files of one folder share what was read"


def test_files_around_several_folders_are_read_once() -> None:
    paths = ["train.py", "main.py", *(f"pkg/m{i}/net{i}.py" for i in range(20))]
    read: list[str] = []
    neighbours = Neighbours(lambda: paths, lambda path: read.append(path) or b"x = 1\n")
    for i in range(20):
        assert "train.py" in neighbours(f"pkg/m{i}/net{i}.py")
    assert len(read) == len(set(read)) == len(paths)


def test_what_was_read_is_not_kept_for_ever() -> None:
    paths = [f"p{i}/sub{j}/net.py" for i in range(20) for j in range(40)]
    neighbours = Neighbours(lambda: paths, lambda path: b"x" * 1000)
    for i in range(20):
        neighbours(f"p{i}/sub0/other.py")
    assert len(neighbours._contents) <= 3 * MOST_FILES


_FOLDER = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4).map("/".join)


@given(st.lists(_FOLDER, max_size=12, unique=True), st.lists(_FOLDER, max_size=3), st.integers(1, 30))
def test_the_nearest_are_those_of_a_look_at_every_file(
    folders: list[str], changed: list[str], most: int
) -> None:
    names = {"net.py": 0.0, "train.py": -1.5}
    paths = {f"{folder}/{name}".lstrip("/"): near for folder in folders for name, near in names.items()}
    edited = {f"{folder}/net.py".lstrip("/") for folder in changed}
    ranked = sorted(
        (min([folder_steps(*(p.rpartition("/")[0] for p in (path, one))) for one in edited], default=0) + near, path)
        for path, near in paths.items()
        if path not in edited
    )  # fmt: skip
    assert files_around(paths, edited, most) == [path for _, path in ranked[:most]]
