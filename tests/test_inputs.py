"""Real git repositories and real folders."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptopt.change import Change, ChangedFile, ChangeError, Status
from ptopt.cli import main
from ptopt.findings import NotReviewed
from ptopt.inputs import (
    MAX_FILE,
    CheckoutError,
    change_between,
    change_from_patch,
    change_from_paths,
    default_base,
    project_files,
    repository_root,
)


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> bytes:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def commit(self, files: dict[str, bytes] | None = None) -> None:
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x", "--allow-empty")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repo")
    repository.commit({"x.py": b"a\nb\nc\n", "pkg/y.py": b"1\n2\n"})
    repository.git("checkout", "-q", "-b", "work")
    return repository


def added(change: Change) -> dict[str, list[int]]:
    return {file.path: sorted(file.added) for file in change.files}


def reasons(change: Change) -> dict[str, str]:
    return {item.path: item.reason for item in change.not_reviewed}


def test_the_branch_and_what_is_not_committed_yet(repo: Repository) -> None:
    repo.commit({"x.py": b"a\nB\nc\n"})
    repo.git("checkout", "-q", "main")
    repo.commit({"pkg/y.py": b"1\n2\n3\n"})  # main goes on: this is no part of the change
    repo.git("checkout", "-q", "work")
    repo.write({"x.py": b"a\nB\nc\nd\n", "pkg/staged.py": b"s\n", "untracked.py": b"u\n"})
    repo.git("add", "pkg/staged.py")
    expected = {"pkg/staged.py": [1], "untracked.py": [1], "x.py": [2, 4]}
    assert added(change_between(repo.root, "main")) == expected
    assert added(change_between(repo.root / "pkg", "main")) == expected
    assert change_between(repo.root / "pkg", "main").compared == "main...working tree, with 1 untracked file"
    assert added(change_between(repo.root, "main", "HEAD")) == {"x.py": [2]}
    assert change_between(repo.root, "main", "HEAD").compared == "main...HEAD"
    assert added(change_between(repo.root, "main", "main")) == {}
    assert repository_root(repo.root / "pkg") == repo.root.resolve()


def test_untracked_files_are_listed_once(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.write({"new.py": b"1\n"})
    listed: list[object] = []
    real = subprocess.run

    def counted(command: list[str], **options: object) -> object:
        listed.extend(word for word in command if word == "--others")
        return real(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)
    result = CliRunner().invoke(main, ["review", "--repo", str(repo.root)])
    assert (result.exit_code, listed) == (0, ["--others"])
    assert "with 1 untracked file" in " ".join(result.output.split())


def test_untracked_files_but_those_of_environments_and_ignored_ones(repo: Repository) -> None:
    repo.write({
        ".gitignore": b"ignored.py\n", "ignored.py": b"1\n", "pkg/new.py": b"1\n", "data.csv": b"1\n",
        "env/pyvenv.cfg": b"", "env/lib/x.py": b"1\n", "conda/conda-meta/history": b"", "conda/y.py": b"1\n",
        ".hidden/z.py": b"1\n", "build/lib/new.py": b"1\n", "nb.ipynb": b"{}\n",
    })  # fmt: skip
    (repo.root / "link.py").symlink_to("ignored.py")
    change = change_between(repo.root, "main")
    assert added(change) == {"nb.ipynb": [1], "pkg/new.py": [1]}
    assert reasons(change) == {"link.py": "a symbolic link, not a file"}


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


@pytest.mark.parametrize("head", [None, "HEAD"])
def test_every_kind_of_change(repo: Repository, tmp_path: Path, head: str | None) -> None:
    body = b"".join(b"line %d\n" % number for number in range(20))
    inner = Repository(tmp_path / "inner")
    inner.commit({"z.py": b"z\n"})
    outside = tmp_path / "outside.py"
    outside.write_bytes(b"secret\n")
    repo.git("checkout", "-q", "main")
    repo.commit({"old name.py": body, "mode.py": b"m\n", "gone.py": b"g\n", "pure.py": body + b"p\n",
                 "w.bin": b"\0\1", "crlf.py": b"a\r\nb\r\n", "data.txt": b"d\n"})  # fmt: skip
    repo.git("checkout", "-q", "work")
    repo.git("reset", "-q", "--hard", "main")
    (repo.root / "new b").mkdir()
    repo.git("mv", "old name.py", "new b/name.py")
    repo.git("mv", "pure.py", "purer.py")
    repo.git("rm", "-q", "gone.py")
    repo.git("submodule", "--quiet", "add", str(inner.root), "sub")
    (repo.root / "mode.py").chmod(0o755)
    (repo.root / "link.py").symlink_to(outside)
    unusual = {'q"uo\\te.py': b"1\n", "café.py": b"1\n", "tab\there.py": b"1\n", " lead.py": b"1\n",
               "-dash.py": b"1\n", "a b/c d.py": b"1\n2"}  # fmt: skip
    repo.commit({"new b/name.py": body + b"more\n", "w.bin": b"\0\2", "crlf.py": b"a\r\nB\x0c\r\n\rb\r\n",
                 "data.txt": b"D\n", "latin.py": b"\xe9 = '\xff'\n", "empty.py": b"", **unusual})  # fmt: skip
    repo.git("update-index", "--chmod=+x", "mode.py")
    change = change_between(repo.root, "main", head)
    files = {file.path: file for file in change.files}
    assert added(change) == {
        "new b/name.py": [21], "crlf.py": [2, 3], "data.txt": [1], "latin.py": [1], ".gitmodules": [1, 2, 3],
        **{name: [1] for name in unusual}, "a b/c d.py": [1, 2],
    }  # fmt: skip
    renamed = files["new b/name.py"]
    assert (renamed.old_path, renamed.status) == ("old name.py", Status.RENAMED)
    assert files["crlf.py"].head == b"a\r\nB\x0c\r\n\rb\r\n"
    assert reasons(change) == {
        "w.bin": "binary, or marked as binary in .gitattributes",
        "sub": "a submodule, not a file",
        "link.py": "a symbolic link, not a file",
    }


def test_an_odd_file_name_that_is_not_utf8(repo: Repository) -> None:
    try:
        (repo.root / os.fsdecode(b"x\xff.py")).write_bytes(b"1\n")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    repo.commit()
    change = change_between(repo.root, "main")
    assert change.files == ()
    assert list(reasons(change)) == ["x\\udcff.py"]


def test_the_format_does_not_depend_on_configuration(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = repo.root / "trap.sh"
    trap.write_text("#!/bin/sh\ntouch sprung\n")
    trap.chmod(0o755)
    settings = {
        "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "diff.external": str(trap),
        "diff.context": "0",
        "core.fsmonitor": str(trap), "diff.odd.textconv": str(trap), "diff.odd.command": str(trap),
        "color.ui": "always", "diff.renames": "false", "diff.relative": "true", "core.quotepath": "false",
        "diff.submodule": "log", "core.pager": str(trap),
    }  # fmt: skip
    for name, value in settings.items():
        repo.git("config", name, value)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u0")
    repo.write({"x.py": b"a\nb\nc\nd\n", ".git/info/attributes": b"*.py diff=odd\n"})
    (file,) = change_between(repo.root / "pkg", "main").files
    assert (file.path, [(hunk.start, hunk.count) for hunk in file.hunks]) == ("x.py", [(1, 4)])
    assert not list(repo.root.rglob("sprung"))


def test_a_file_that_is_too_large(repo: Repository) -> None:
    repo.commit({"big.py": b"x" * (MAX_FILE + 1) + b"\n", "small.py": b"1\n"})
    for head in (None, "HEAD"):
        change = change_between(repo.root, "main", head)
        assert added(change) == {"small.py": [1]}
        assert reasons(change) == {"big.py": "too large: 5.0 MB, the limit is 5 MB"}


def test_a_folder_that_became_a_link_out_of_the_tree(repo: Repository, tmp_path: Path) -> None:
    """The diff tells of a file under a folder; on disk the folder is a link to elsewhere."""
    repo.commit({"pkg/y.py": b"1\n2\n3\n"})
    diff = repo.git("diff", "main", "HEAD")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y.py").write_bytes(b"1\n2\n3\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "pkg").symlink_to(tmp_path / "elsewhere")
    change = change_from_patch(diff, tree)
    assert change.files == ()
    assert reasons(change) == {"pkg/y.py": "a link in its path leads out of the tree"}


def test_a_patch_with_its_tree(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"x.py": b"a\nB\nc\n", "n.py": b"n\n"})
    diff = repo.git("diff", "main", "HEAD")
    assert added(change_from_patch(diff, repo.root)) == {"n.py": [1], "x.py": [2]}
    plain = repo.git("diff", "--no-prefix", "main", "HEAD")
    assert added(change_from_patch(plain, repo.root)) == {"n.py": [1], "x.py": [2]}
    mail = repo.git("format-patch", "--stdout", "main..HEAD")
    assert added(change_from_patch(mail, repo.root)) == {"n.py": [1], "x.py": [2]}
    repo.git("checkout", "-q", "main")
    with pytest.raises(CheckoutError, match="the patch is not applied here"):
        change_from_patch(diff, repo.root)
    repo.write({"z.py": b"z\n"})
    new = b"--- /dev/null\n+++ b/z.py\n@@ -0,0 +1 @@\n+z\n"
    assert reasons(change_from_patch(diff + new, repo.root)) == {
        "n.py": "the head version of the file is missing",
        "x.py": "the tree does not match the diff: line 2 of the file is not the line in the diff",
    }
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(
        CheckoutError, match=r"holds no Python file of the patch, such as 'n.py'; give the folder"
    ):
        change_from_patch(diff, tmp_path / "elsewhere")
    with pytest.raises(CheckoutError, match="not a folder"):
        change_from_patch(diff, tmp_path / "nowhere")


def test_the_combined_diff_of_a_merge_is_refused(repo: Repository) -> None:
    repo.commit({"x.py": b"a\nB\nc\n"})
    repo.git("checkout", "-q", "main")
    repo.commit({"x.py": b"a\nb2\nc\n"})
    repo.git("checkout", "-q", "work")
    merge = subprocess.run(["git", "merge", "-q", "main"], cwd=repo.root, capture_output=True)
    assert merge.returncode == 1
    with pytest.raises(ChangeError, match="combined diff"):
        change_from_patch(repo.git("diff"), repo.root)
    assert [file.path for file in change_between(repo.root, "main").files] == ["x.py"]  # in the middle of it
    repo.commit({"x.py": b"a\nB2\nc\n"})
    with pytest.raises(ChangeError, match="combined diff"):
        change_from_patch(repo.git("show", "--format="), repo.root)
    assert added(change_between(repo.root, "main")) == {"x.py": [2]}


# --- errors


def test_an_unknown_base_names_what_is_near(repo: Repository) -> None:
    with pytest.raises(CheckoutError, match=r"'mian' is not a revision .* main.* git fetch origin mian"):
        change_between(repo.root, "mian")
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


# --- folders


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
    assert found[3] == NotReviewed("readme.md", "not a Python file or a notebook")


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
    with pytest.raises(CheckoutError, match="nowhere: no such file or folder"):
        change_from_paths([tree, tree / "nowhere"], tree, wants=lambda name: True)


def test_project_files(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"s")
    (tree / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tree / "large.txt").write_bytes(b"x" * 1_000_001)
    asked = ["readme.md", "a/z.py", "missing", "a", "../secret.txt", str(tmp_path / "secret.txt"), "link.txt",
             "large.txt", "nul\0"]  # fmt: skip
    assert project_files(tree, asked) == {"readme.md": b"x\n", "a/z.py": b"x\n"}


# --- git's own diffs

LINE = st.sampled_from([b"", b"a", b"b\r", b"\rc", b"\x0cd", b"\xff", b"-- e", b"++ f", b"@@ -1 +1 @@"])
TEXT = st.lists(LINE, min_size=1, max_size=25).map(b"\n".join)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=TEXT, new=TEXT, context=st.integers(0, 3))
def test_what_git_diff_says_is_what_is_new(tmp_path: Path, old: bytes, new: bytes, context: int) -> None:
    for name, text in (("old.py", old), ("new.py", new)):
        (tmp_path / name).write_bytes(text)
    done = subprocess.run(
        ["git", "diff", "--no-index", "--text", f"-U{context}", "old.py", "new.py"],
        cwd=tmp_path,
        capture_output=True,
    )
    change = change_from_patch(done.stdout, tmp_path)
    assert change.not_reviewed == ()
    old_lines, new_lines = (re.findall(rb"[^\n]*\n|[^\n]+", text) for text in (old, new))
    for file in change.files:
        assert file.path == "new.py"
        # Without what the change wrote, the new file is made of lines of the old one, in its order.
        kept = [line for number, line in enumerate(new_lines, 1) if number not in file.added]
        rest = iter(old_lines)
        assert all(line in rest for line in kept)
        covered = {line for hunk in file.hunks for line in hunk.lines()}
        assert file.added <= covered
    numbers = {line for file in change.files for line in file.added}
    plus = sum(line.startswith(b"+") for line in done.stdout.split(b"\n")) - (b"\n+++ " in done.stdout)
    assert len(numbers) == (plus if change.files else 0)


def test_a_commit_that_a_shallow_clone_lacks(repo: Repository, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{repo.root}", str(tmp_path / "s")], check=True
    )
    with pytest.raises(
        CheckoutError, match=r"'HEAD~1' is not .*the clone is shallow, .*git fetch --unshallow"
    ):
        change_between(tmp_path / "s", "HEAD~1")
