"""Which revisions there are, and what is said of those that are not there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ptopt.inputs import CheckoutError, change_between, default_base
from tests.inputs.repository import Repository, added


def test_the_default_base_is_the_default_branch_of_the_remote(repo: Repository, tmp_path: Path) -> None:
    assert default_base(repo.root) == "main"
    repo.git("checkout", "-q", "-b", "develop", "main")
    subprocess.run(["git", "clone", "-q", str(repo.root), str(tmp_path / "clone")], check=True)
    assert default_base(tmp_path / "clone") == "origin/develop"
    repo.git("branch", "-m", "main", "master")
    assert default_base(repo.root) == "master"
    repo.git("branch", "-D", "master")
    with pytest.raises(CheckoutError, match=r"neither origin/HEAD nor .* --base"):
        default_base(repo.root)


def test_an_unknown_base_names_what_is_near(repo: Repository) -> None:
    with pytest.raises(CheckoutError, match=r"'mian' is not a revision .* main.* git fetch origin mian"):
        change_between(repo.root, "mian")
    with pytest.raises(CheckoutError, match=r"'master' is not a revision .*; the nearest: main; "):
        change_between(repo.root, "master")
    with pytest.raises(CheckoutError, match="'nope' is not a revision"):
        change_between(repo.root, "main", "nope")


@pytest.mark.parametrize("base", ["--output=sprung", "-p", "", "a\0b"])
def test_an_option_is_no_revision(repo: Repository, base: str) -> None:
    with pytest.raises(CheckoutError, match="is not a revision; name a branch"):
        change_between(repo.root, base)
    assert not (repo.root / "sprung").exists()


def test_a_base_that_only_the_remote_has(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"x.py": b"a\nB\nc\n"})
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "-b", "work", str(repo.root), str(clone)], check=True)
    assert added(change_between(clone, "main")) == {"x.py": [2]}
    assert added(change_between(clone, "origin/main")) == {"x.py": [2]}


def test_a_shallow_clone(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"x.py": b"a\nB\nc\n"})
    repo.git("checkout", "-q", "main")
    repo.commit({"z.py": b"z\n"})
    clone = tmp_path / "clone"
    url = repo.root.as_uri()
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", "--no-single-branch", "-b", "work", url, str(clone)], check=True
    )
    with pytest.raises(CheckoutError, match=r"shallow.*git fetch --unshallow"):
        change_between(clone, "main")


def test_histories_without_a_common_commit(repo: Repository) -> None:
    repo.git("checkout", "-q", "--orphan", "other")
    repo.commit({"x.py": b"another\n"})
    with pytest.raises(CheckoutError, match="no common commit"):
        change_between(repo.root, "main")


def test_no_repository_no_commit_no_folder_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckoutError, match="not a git repository"):
        change_between(tmp_path, "main")
    with pytest.raises(CheckoutError, match="no such folder"):
        change_between(tmp_path / "nowhere", "main")
    empty = Repository(tmp_path / "empty")
    with pytest.raises(CheckoutError, match="no commit yet"):
        change_between(empty.root, "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CheckoutError, match="git is not installed"):
        change_between(empty.root, "main")


def test_a_bare_repository_gives_the_change_between_two_commits(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"x.py": b"a\nB\nc\n"})
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(repo.root), str(bare)], check=True)
    assert added(change_between(bare, "main", "work")) == {"x.py": [2]}
    with pytest.raises(CheckoutError, match="work tree"):
        change_between(bare, "main")


def test_a_commit_that_a_shallow_clone_lacks(repo: Repository, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "s")], check=True
    )
    with pytest.raises(
        CheckoutError, match=r"'HEAD~1' is not .*the clone is shallow, .*git fetch --unshallow"
    ):
        change_between(tmp_path / "s", "HEAD~1")
