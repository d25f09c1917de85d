"""The diff that is put together from the files API: every name and every line as git means them."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.change import Change, ChangedFile, Status, parse_diff
from ptopt.github.reading import unified_diff
from ptopt.github.values import PullFile

PATCH = "@@ -1,2 +1,3 @@\n import torch\n+x = 1\n y = 2"
HEAD = b"import torch\nx = 1\ny = 2\n"


def pull_file(
    path: str, status: str = "modified", previous: str | None = None, patch: str | None = PATCH
) -> PullFile:
    return PullFile(path, previous, status, "a" * 40, 1, 0, patch)


def read(file: PullFile, head: bytes = HEAD) -> Change:
    return parse_diff(unified_diff(file), lambda _: head)


def only(change: Change) -> ChangedFile:
    assert not change.not_reviewed
    (file,) = change.files
    return file


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        "with space.py",
        " lead.py",
        "trail .py",
        "tab\there.py",
        "line\nbreak.py",
        "carriage\r.py",
        'quo"te.py',
        "back\\slash.py",
        "näme-模型-🔥.py",
        "bell\a\b\v\f\x7f.py",
        "a/b.py b/b.py",
        "x b/x.py",
        "dev/null.py",
        "diff --git a/x b/x.py",
        "octal\\101.py",
        "a\n+++ b/evil.py",
    ],
)
def test_a_name_comes_out_as_it_went_in(path: str) -> None:
    file = only(read(pull_file(path)))
    assert (file.path, file.old_path, file.status) == (path, None, Status.MODIFIED)
    assert file.added == {2}
    renamed = only(read(pull_file(path, "renamed", "old " + path)))
    assert (renamed.path, renamed.old_path, renamed.status) == (path, "old " + path, Status.RENAMED)
    copied = only(read(pull_file("new " + path, "copied", path)))
    assert (copied.path, copied.old_path, copied.status) == ("new " + path, path, Status.ADDED)


def test_an_added_file() -> None:
    file = only(read(pull_file("new.py", "added", patch="@@ -0,0 +1 @@\n+x = 1"), b"x = 1\n"))
    assert (file.status, file.added) == (Status.ADDED, {1})


@pytest.mark.parametrize(
    "path", ["../up.py", "a/../../up.py", "/etc/x.py", "..\\up.py", "C:\\x.py", "a\0.py"]
)
def test_a_path_that_leaves_the_tree_is_told_and_its_head_not_read(path: str) -> None:
    def heads(asked: str) -> bytes | None:
        raise AssertionError(asked)

    change = parse_diff(unified_diff(pull_file(path)), heads)
    assert not change.files
    (told,) = change.not_reviewed
    assert "leaves the tree" in told.reason


def test_a_file_without_a_line_break_at_its_end() -> None:
    patch = "@@ -1 +1 @@\n-x = 1\n\\ No newline at end of file\n+x = 2\n\\ No newline at end of file"
    assert only(read(pull_file("a.py", patch=patch), b"x = 2")).added == {1}


def test_carriage_returns_and_other_line_ends_stay_where_they_are() -> None:
    patch = "@@ -1,2 +1,3 @@\n import torch\r\n+x = '\x0c\x85\u2028'\r\n y = 2\r"
    head = "import torch\r\nx = '\x0c\x85\u2028'\r\ny = 2\r\n".encode()
    assert only(read(pull_file("a.py", patch=patch), head)).added == {2}


NAMES = st.text(min_size=1, max_size=30)


@given(NAMES, st.one_of(st.none(), NAMES), st.sampled_from(["added", "modified", "renamed", "copied"]))
def test_any_name_is_one_file_or_one_reason(path: str, previous: str | None, status: str) -> None:
    patch = "@@ -0,0 +1,3 @@\n+import torch\n+x = 1\n+y = 2" if status == "added" else PATCH
    change = read(pull_file(path, status, previous, patch))
    found = [file.path for file in change.files]
    assert len(found) + len(change.not_reviewed) == 1
    assert not found or found == [str(PurePosixPath(path))]
