"""Changes of real git repositories."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptopt.change import ChangeError, Status
from ptopt.cli import main
from ptopt.inputs import MAX_FILE, CheckoutError, change_between, change_from_patch, repository_root
from tests.inputs.repository import Repository, added, reasons


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
    repo.write({"caller.py": b"import n\n"})
    change = change_from_patch(diff, repo.root)
    assert added(change) == {"n.py": [1], "x.py": [2]}
    assert change.around["caller.py"] == b"import n\n" and not {"n.py", "x.py"} & change.around.keys()
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
