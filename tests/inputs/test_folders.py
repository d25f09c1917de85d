"""Real folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptopt.change import ChangedFile
from ptopt.findings import NotReviewed
from ptopt.inputs import MAX_FILE, CheckoutError, change_from_paths, project_files


def names(found: Iterator[ChangedFile | NotReviewed]) -> list[str]:
    return [item.path for item in found]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in (
        "b.py", "a/z.py", "a.py", "a-b.py", "n.ipynb", "readme.md", ".hidden/h.py", ".git/g.py",
        "venv/pyvenv.cfg", "venv/lib/v.py", "node_modules/m.py", "a/__pycache__/c.py", "build/b.py",
        "dist/d.py", "site-packages/s.py",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x\n")
    return root


def test_a_walk_is_in_order_of_path_and_skips_what_is_not_the_users(tree: Path) -> None:
    found = list(change_from_paths([tree], tree, wants=lambda name: True))
    assert names(iter(found)) == ["a-b.py", "a.py", "a/z.py", "b.py", "n.ipynb"]
    assert all(isinstance(item, ChangedFile) and item.added == {1} for item in found)


def test_what_is_named_is_walked(tree: Path) -> None:
    named = [
        tree / "venv",
        tree / ".hidden",
        tree / "build",
        tree / "readme.md",
        tree / "a",
        tree / "a" / "z.py",
    ]
    found = list(change_from_paths(named, tree, wants=lambda name: True))
    assert names(iter(found)) == ["venv/lib/v.py", ".hidden/h.py", "build/b.py", "readme.md", "a/z.py"]
    assert found[3] == NotReviewed("readme.md", "not Python, a notebook or a configuration")


def test_wants_is_asked_before_reading_and_reading_is_lazy(tree: Path) -> None:
    asked: list[str] = []

    def wants(name: str) -> bool:
        asked.append(name)
        return not name.startswith("a")

    os.mkfifo(tree / "a.pipe.py")  # reading it would block for ever
    found = change_from_paths([tree], tree, wants=wants)
    assert next(found).path == "b.py"
    assert asked == ["a-b.py", "a.pipe.py", "a.py", "a/z.py", "b.py"]
    assert names(found) == ["n.ipynb"]
    pipe = list(change_from_paths([tree / "a.pipe.py"], tree, wants=lambda name: True))
    assert pipe == [NotReviewed("a.pipe.py", "not a regular file")]


def test_links_are_not_followed_and_large_files_not_read(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "o.py").write_bytes(b"secret\n")
    (tree / "loop").symlink_to(tree)
    (tree / "out").symlink_to(tmp_path / "outside")
    (tree / "out.py").symlink_to(tmp_path / "outside" / "o.py")
    (tree / "big.py").write_bytes(b"x" * (MAX_FILE + 1))
    found = list(change_from_paths([tree], tree, wants=lambda name: True))
    assert [item for item in found if isinstance(item, NotReviewed)] == [
        NotReviewed("big.py", "too large: 5.0 MB, the limit is 5 MB"),
        NotReviewed("out.py", "a symbolic link, not a file"),
    ]
    assert len(found) == 7
    outside = (tmp_path / "outside" / "o.py").resolve()
    assert names(change_from_paths([tree / "out"], tree, wants=lambda name: True)) == [outside.as_posix()]


def test_a_path_that_does_not_exist(tree: Path) -> None:
    with pytest.raises(CheckoutError, match="nowhere, gone: no such file or folder"):
        change_from_paths([Path("nowhere"), tree, Path("gone")], tree, wants=lambda name: True)


def test_project_files(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"s")
    (tree / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tree / "large.txt").write_bytes(b"x" * 1_000_001)
    asked = ["readme.md", "a/z.py", "missing", "a", "../secret.txt", str(tmp_path / "secret.txt"), "link.txt",
             "large.txt", "nul\0"]  # fmt: skip
    assert project_files(tree, asked) == {"readme.md": b"x\n", "a/z.py": b"x\n"}


def test_configurations_are_found_and_data_is_not_read(tmp_path: Path) -> None:
    files = {
        ".github/workflows/ci.yml": "on: push\n",
        ".circleci/config.yml": "a: 1\n",
        "Dockerfile": "FROM a\n",
        "conf/train.yaml": "a: 1\n",
        "conf/huge.yaml": "a: " + "1" * 300_000,
        "package.json": "{}",
        "data/items.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = change_from_paths([tmp_path], tmp_path, wants=lambda name: True)
    assert names(found) == [".github/workflows/ci.yml", "Dockerfile", "conf/train.yaml"]


def test_a_named_file_that_configures_nothing_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\n")
    (found,) = change_from_paths([tmp_path / "a.yaml"], tmp_path, wants=lambda name: True)
    assert (
        isinstance(found, NotReviewed) and "not recognised as a configuration of Hugging Face" in found.reason
    )
    assert "of Hydra with the `_target_` of a loader" in found.reason  # other files of Hydra are not reviewed
