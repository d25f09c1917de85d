"""The texts of a folder that may name its configurations are read when somebody asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptopt.inputs import naming
from ptopt.inputs.commits import naming_in_commit
from ptopt.inputs.naming import naming_below
from tests.inputs.repository import Repository


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_nothing_is_read_before_the_first_question(tmp_path: Path) -> None:
    found = naming_below(tmp_path)
    write(tmp_path, {"run.sh": "--deepspeed conf/zero3.json", "data.csv": "conf/zero2.json"})
    assert found.used("conf/zero3.json") is True and found.used("conf/zero2.json") is False
    assert list(found.files) == ["run.sh"]


def test_workflows_are_read_and_other_hidden_folders_are_not(tmp_path: Path) -> None:
    write(
        tmp_path,
        {".github/workflows/a.yml": "file: docker/Dockerfile.a", ".cache/a.sh": "docker/Dockerfile.b"},
    )
    found = naming_below(tmp_path)
    assert found.used("docker/Dockerfile.a") is True and found.used("docker/Dockerfile.b") is False


def test_in_a_folder_with_too_many_texts_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "_MOST_FILES", 1)
    write(tmp_path, {"a.sh": "conf/zero3.json", "b.sh": "true"})
    found = naming_below(tmp_path)
    assert found.used("conf/zero3.json") is True and found.used("conf/zero2.json") is None


def test_a_file_that_is_too_large_names_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"a.sh": "conf/zero3.json" + " " * naming.MOST_BYTES})
    assert naming_below(tmp_path).used("conf/zero3.json") is False


def test_a_commit_is_read_as_a_folder_is(repo: Repository) -> None:
    files = {
        ".github/workflows/a.yml": b"file: docker/Dockerfile.a",
        ".cache/a.sh": b"docker/Dockerfile.b",
        "env/pyvenv.cfg": b"",
        "env/run.sh": b"docker/Dockerfile.c",
        "big.sh": b"docker/Dockerfile.d" + b" " * naming.MOST_BYTES,
        "data.csv": b"docker/Dockerfile.e",
        "scripts/ü.sh": b"docker/Dockerfile.f",
    }
    repo.commit(files)
    (repo.root / "linked.sh").symlink_to("docker/Dockerfile.g")
    repo.commit()
    repo.git("rm", "-q", "-r", "--cached", ".")  # neither the index nor the working tree counts
    repo.write({"later.sh": b"docker/Dockerfile.h"})
    here, there = naming_below(repo.root), naming_in_commit(repo.root, "HEAD")
    used = {name: there.used(f"docker/Dockerfile.{name}") for name in "abcdefgh"}
    assert used == {**dict.fromkeys("bcdegh", False), "a": True, "f": True}
    assert here.used("docker/Dockerfile.h") is True
    assert {name: here.used(f"docker/Dockerfile.{name}") for name in "abcdefg"} == {
        name: value for name, value in used.items() if name != "h"
    }
