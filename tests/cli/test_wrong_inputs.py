"""What newcomers get wrong: each error says what is wrong, where, and what to do, and exits with 2."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import OPS, run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no repository, with a file, and an empty repository in it."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "no.patch").write_text("hello\n")
    (tmp_path / "empty.patch").touch()
    (tmp_path / "not.json").write_text("{")
    subprocess.run(["git", "init", "-q", "-b", "main", "empty"], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "where", "what_to_do"),
    [
        ("check absent.py also/absent", "absent.py, also/absent: no such file", ""),
        ("check loop", "loop: a symbolic link that leads to no file or folder", ""),
        ("check --select nosuch", "unknown rule 'nosuch'", "`ptopt rules` lists them"),
        ("check --format xml", "'xml' is not one of 'terminal'", "see `ptopt check --help`"),
        ("check --baseline absent.json", "absent.json: no such file", "--write-baseline absent.json"),
        ("check --baseline not.json", "not.json: not a baseline", "ptopt check --write-baseline FILE"),
        ("check --write-baseline ops.py", "ops.py: not a baseline", "to another file"),
        ("check --output absent/x.json", "the folder 'absent' does not exist", "see `ptopt check --help`"),
        ("audit --output absent/x.html", "the folder 'absent' does not exist", "see `ptopt audit --help`"),
        ("audit ops.py", "ops.py: not a folder", "an audit is of a whole repository"),
        ("check --config absent.toml", "absent.toml: No such file", ""),
        ("config check ops.py", "ops.py: give a folder", ".ptopt.toml"),
        ("review", ".: not a git repository", "review files with `ptopt check`"),
        ("review --repo empty", "empty: the repository has no commit yet", "commit something first"),
        ("review --repo empty --base main", "empty: the repository has no commit yet", "commit something"),
        ("review ops.py", "unexpected extra argument (ops.py)", "`ptopt check` reviews files"),
        ("review main..feat", "main..feat is a range", "write --base main --head feat"),
        ("review --diff no.patch", "--diff FILE and --tree DIR go together", "see `ptopt review --help`"),
        ("review --diff no.patch --tree .", "this is not a unified diff", "git diff main...HEAD"),
        ("review --diff empty.patch --tree .", "empty.patch: the patch is empty", "`git diff main...HEAD`"),
        ("review --diff no.patch --tree absent", "absent: not a folder", "give the folder"),
        ("fix --base nosuch", ".: not a git repository", "run ptopt inside one"),
        ("explain nosuch", "unknown rule 'nosuch'", "`ptopt rules` lists them"),
        ("chekc", "No such command 'chekc'", "Did you mean 'check'?"),
        ("profile not.json", "not.json: ", "trace of torch.profiler"),
    ],
)
def test_an_error_says_what_is_wrong_where_and_what_to_do(
    here: Path, arguments: str, where: str, what_to_do: str
) -> None:
    result = run(*arguments.split())
    assert result.exit_code == 2 and not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("ptopt: error: ") and where in line and what_to_do in line


def test_a_link_that_leads_back_to_itself_costs_nothing_else(here: Path) -> None:
    (here / "loop.py").symlink_to("loop.py")
    (here / "loop.yaml").symlink_to("loop.yaml")
    (here / "folder").symlink_to(".")
    for name in ("check", "audit"):
        result = run(name, here, "--format", "json", *["--select=PTO407"] * (name == "check"))
        assert result.exit_code == 0, result.stderr
        assert "crashed" not in result.stdout
    assert '"PTO407"' in run("check", here, "--format", "json", "--select=PTO407").stdout


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("syntax.py", b"def f(:\n", "does not parse with Python 3"),
        ("binary.py", b"\x7fELF\0\0", "a binary file, or UTF-16"),
        ("latin.py", b"s = 'caf\xe9'\n", "not UTF-8 at byte 8, and no encoding is declared (line 1)"),
        ("cut.ipynb", b'{"cells": [', "not valid JSON: the file ends early (line 1)"),
        ("list.ipynb", b"[1]", "not a notebook: the file is not an object (line 1)"),
        ("huge.py", b"import torch\n" * 200_000, "larger than 2 MB, treated as generated"),
    ],
)
def test_a_file_that_cannot_be_reviewed_is_named_with_the_reason(
    here: Path, name: str, data: bytes, reason: str
) -> None:
    (here / name).write_bytes(data)
    result = run("check", name)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert f"{reason}" in text and text.endswith(f": {name}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_said(here: Path) -> None:
    here.chmod(0o555)
    try:
        result = run("check", "--output", "x.json")
        assert result.exit_code == 2 and "'x.json' cannot be written: permission denied" in result.stderr
    finally:
        here.chmod(0o755)


def test_a_file_that_fix_cannot_write_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(here / ".ops.py.tmp"))

    monkeypatch.setattr("tempfile.mkstemp", refused)
    result = run("fix", "--select", "PTO407", "ops.py")
    assert result.exit_code == 2
    assert result.stderr == "ptopt: error: ops.py: cannot be written, and is as it was: Permission denied\n"
