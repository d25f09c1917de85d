"""Diffs of every kind, written out, and properties over diffs made by difflib and damaged at random."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.change import Change, ChangedFile, ChangeError, Hunk, Status, parse_diff, whole_file
from ptopt.findings import NotReviewed, Span


def parse(diff: str | bytes, heads: Mapping[str, bytes]) -> Change:
    return parse_diff(diff.encode() if isinstance(diff, str) else diff, heads.get)


def only(change: Change) -> ChangedFile:
    assert change.not_reviewed == ()
    (file,) = change.files
    return file


ONE = """\
diff --git a/x.py b/x.py
index 1111111..2222222 100644
--- a/x.py
+++ b/x.py
@@ -1,3 +1,4 @@ def f():
 a
-b
+B
+C
 d
@@ -10,2 +11,3 @@
 j
+K
 l
"""
ONE_HEAD = b"a\nB\nC\nd\n5\n6\n7\n8\n9\n10\nj\nK\nl\n"


def test_a_plain_change() -> None:
    file = only(parse(ONE, {"x.py": ONE_HEAD}))
    assert file == ChangedFile(
        "x.py", None, Status.MODIFIED, (Hunk(1, 4), Hunk(11, 3)), frozenset({2, 3, 12}), ONE_HEAD, ((2, "b"),)
    )
    assert list(file.hunks[1].lines()) == [11, 12, 13]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (2, 3, Span(2, 3)),
        (1, 9, Span(1, 4)),
        (1, 1, Span(1, 1)),  # context can carry a comment
        (4, 12, Span(11, 12)),  # the first added line of the range is in the second hunk
        (4, 11, Span(4, 4)),  # no added line: the first hunk that is touched
        (5, 10, None),
        (14, 99, None),
        (12, 11, None),
    ],
)
def test_anchor(start: int, end: int, expected: Span | None) -> None:
    assert only(parse(ONE, {"x.py": ONE_HEAD})).anchor(start, end) == expected


def test_whole_file() -> None:
    file = whole_file("x.py", b"a\r\n\x0c\x85b\nlast")
    assert file.hunks == (Hunk(1, 3),)
    assert file.added == {1, 2, 3}
    assert file.anchor(2, 9) == Span(2, 3)
    assert whole_file("x.py", b"a\n\n").added == {1, 2}
    empty = whole_file("x.py", b"")
    assert (empty.hunks, empty.added, empty.anchor(1, 1)) == ((), frozenset(), None)


def test_renames_copies_and_what_brings_no_line() -> None:
    diff = """\
diff --git a/old name.py b/new name.py
similarity index 90%
rename from old name.py
rename to new name.py
index 1111111..2222222 100644
--- a/old name.py\t
+++ b/new name.py\t
@@ -1 +1,2 @@
 a
+b
diff --git a/src.py b/copy.py
similarity index 80%
copy from src.py
copy to copy.py
--- a/src.py
+++ b/copy.py
@@ -1 +1 @@
-a
+c
diff --git a/p.py b/q.py
similarity index 100%
rename from p.py
rename to q.py
diff --git a/run.py b/run.py
old mode 100644
new mode 100755
diff --git a/empty.py b/empty.py
new file mode 100644
index 0000000..e69de29
diff --git a/gone.py b/gone.py
deleted file mode 100644
index 1111111..0000000
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-a
diff --git a/emptied.py b/emptied.py
index 1111111..e69de29 100644
--- a/emptied.py
+++ b/emptied.py
@@ -1 +0,0 @@
-a
"""
    change = parse(diff, {"new name.py": b"a\nb\n", "copy.py": b"c\n"})
    assert change.not_reviewed == ()
    copy, renamed = change.files
    assert (copy.path, copy.old_path, copy.status) == ("copy.py", "src.py", Status.ADDED)
    assert (renamed.path, renamed.old_path, renamed.status) == ("new name.py", "old name.py", Status.RENAMED)


def test_what_is_not_reviewed_and_why() -> None:
    diff = """\
diff --git a/w.bin b/w.bin
index 1111111..2222222 100644
Binary files a/w.bin and b/w.bin differ
diff --git a/p.bin b/p.bin
new file mode 100644
index 0000000..2222222
GIT binary patch
literal 3
Kc${Nk-~b0F0ssI2

literal 0
HcmV?d00001

diff --git a/old.bin b/old.bin
deleted file mode 100644
index 1111111..0000000
Binary files a/old.bin and /dev/null differ
diff --git a/sub b/sub
index 1111111..2222222 160000
--- a/sub
+++ b/sub
@@ -1 +1 @@
-Subproject commit 1111111
+Subproject commit 2222222
diff --git a/link.py b/link.py
new file mode 120000
index 0000000..2222222
--- /dev/null
+++ b/link.py
@@ -0,0 +1 @@
+../../etc/passwd
\\ No newline at end of file
diff --git a/lost.py b/lost.py
index 1111111..2222222 100644
--- a/lost.py
+++ b/lost.py
@@ -1 +1 @@
-a
+b
"""
    change = parse(diff, {"link.py": b"../../etc/passwd", "sub": b"Subproject commit 2222222\n"})
    assert change.files == ()
    assert {item.path: item.reason.split(",")[0] for item in change.not_reviewed} == {
        "w.bin": "binary",
        "p.bin": "binary",
        "sub": "a submodule",
        "link.py": "a symbolic link",
        "lost.py": "the head version of the file is missing",
    }
    assert list(change.not_reviewed) == sorted(change.not_reviewed)


def test_a_file_that_turns_into_a_link_is_no_series() -> None:
    diff = """\
diff --git a/x.py b/x.py
deleted file mode 100644
index 1111111..0000000
--- a/x.py
+++ /dev/null
@@ -1 +0,0 @@
-a
diff --git a/x.py b/x.py
new file mode 120000
index 0000000..2222222
--- /dev/null
+++ b/x.py
@@ -0,0 +1 @@
+y.py
\\ No newline at end of file
"""
    assert parse(diff, {}).not_reviewed == (NotReviewed("x.py", "a symbolic link, not a file"),)


@pytest.mark.parametrize(
    "head",
    [
        b"a\nB\n",  # the file is shorter
        b"a\nB\nx\nd\n5\n6\n7\n8\n9\n10\nj\nK\nl\n",  # an added line is another
        b"a\nb\nd\n4\n5\n6\n7\n8\n9\nj\nl\n",  # the base, not the head
    ],
)
def test_the_wrong_tree(head: bytes) -> None:
    change = parse(ONE, {"x.py": head})
    assert change.files == ()
    assert "the tree does not match the diff" in change.not_reviewed[0].reason


def test_the_wrong_tree_of_a_change_that_only_deletes() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,2 @@\n a\n-b\n c\n"
    assert only(parse(diff, {"x.py": b"a\nc\n"})).added == frozenset()
    assert parse(diff, {"x.py": b"a\nb\nc\n"}).files == ()


def test_the_disk_may_have_other_line_ends_than_the_diff() -> None:
    assert only(parse(ONE, {"x.py": ONE_HEAD.replace(b"\n", b"\r\n")})).added == {2, 3, 12}
    assert only(parse(ONE.replace("\n", "\r\n"), {"x.py": ONE_HEAD})).path == "x.py"


def test_bytes_that_other_tools_take_for_line_ends() -> None:
    odd = [
        b"a\rb",
        b"\x0bc",
        b"\x0c",
        b"\x1c\x1d\x1ed",
        b"\x85e",
        "\u2028f\u2029".encode(),
        b"\xff\xfe",
        b"g\r",
    ]
    head = b"first\n" + b"\n".join(odd) + b"\nlast\n"
    diff = b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,10 @@\n first\n" + b"".join(b"+%s\n" % line for line in odd)
    file = only(parse(diff + b" last\n", {"x.py": head}))
    assert file.added == set(range(2, 10))
    assert file.head == head


@pytest.mark.parametrize("marker", ["No newline at end of file", "Pas de fin de ligne à la fin du fichier"])
def test_no_newline_at_the_end(marker: str) -> None:
    diff = f"--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-a\n\\ {marker}\n+a\n+b\n\\ {marker}\n"
    second = f"--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-a\n+b\n\\ {marker}\n"
    change = parse(diff + second, {"x.py": b"a\nb", "y.py": b"b"})
    assert {file.path: set(file.added) for file in change.files} == {"x.py": {1, 2}, "y.py": {1}}


@pytest.mark.parametrize(
    ("header", "path"),
    [
        (('diff --git "a/caf\\303\\251.py" "b/caf\\303\\251.py"\n'
         '--- "a/caf\\303\\251.py"\n+++ "b/caf\\303\\251.py"\n'), "café.py"),
        ("diff --git a/café.py b/café.py\n--- a/café.py\n+++ b/café.py\n", "café.py"),
        (('diff --git "a/q\\"\\\\\\t.py" "b/q\\"\\\\\\t.py"\n'
         '--- "a/q\\"\\\\\\t.py"\n+++ "b/q\\"\\\\\\t.py"\n'), 'q"\\\t.py'),
        (('diff --git a/x.py "b/caf\\303\\251.py"\nrename from x.py\nrename to "caf\\303\\251.py"\n'
         '--- a/x.py\n+++ "b/caf\\303\\251.py"\n'), "café.py"),
        ("diff --git a/my b/x.py b/my b/x.py\n--- a/my b/x.py\t\n+++ b/my b/x.py\t\n", "my b/x.py"),
        ("diff --git b/x y.py b/x y.py\n--- b/x y.py\t\n+++ b/x y.py\t\n", "b/x y.py"),
        ("diff --git b/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n", "b/x.py"),
        ("diff --git i/x.py w/x.py\n--- i/x.py\n+++ w/x.py\n", "x.py"),
        ("diff --git old/x.py new/x.py\n--- old/x.py\n+++ new/x.py\n", "new/x.py"),
        ("diff --git a/old.py b/new.py\nindex 1..2 100644\n--- a/old.py\n+++ b/new.py\n", "new.py"),
        ("--- x.py.orig\t2024-01-01 10:00:00.000000000 +0100\n+++ x.py\t2024-01-02 10:00:00 +0100\n", "x.py"),
        ("diff -u -r a/x.py b/x.py\n--- a/x.py\t2024-01-01\n+++ b/x.py\t2024-01-02\n", "x.py"),
        ("--- /dev/null\n+++ b/pkg//./x.py\n", "pkg/x.py"),
    ],
)  # fmt: skip
def test_names(header: str, path: str) -> None:
    assert only(parse(header + "@@ -0,0 +1 @@\n+a\n", {path: b"a\n"})).path == path


def test_plain_diff_of_folders() -> None:
    diff = """\
Only in new: notes.txt
diff -ruN old/a.py new/a.py
--- old/a.py\t2024-01-01 10:00:00.000000000 +0100
+++ new/a.py\t2024-01-02 10:00:00.000000000 +0100
@@ -1 +1 @@
-a
+b
Binary files old/my and x.bin and new/my and x.bin differ
diff -ruN old/gone.py new/gone.py
--- old/gone.py\t2024-01-01 10:00:00.000000000 +0100
+++ new/gone.py\t1970-01-01 00:00:00.000000000 +0000
@@ -1 +0,0 @@
-a
diff -ruN old/n.py new/n.py
--- old/n.py\t1970-01-01 00:00:00.000000000 +0000
+++ new/n.py\t2024-01-02 10:00:00.000000000 +0100
@@ -0,0 +1 @@
+a
"""
    change = parse(diff, {"new/a.py": b"b\n", "new/n.py": b"a\n"})
    assert [(file.path, file.status) for file in change.files] == [
        ("new/a.py", Status.MODIFIED),
        ("new/n.py", Status.ADDED),
    ]
    assert [item.path for item in change.not_reviewed] == ["new/my and x.bin"]


def test_a_mail() -> None:
    mail = (
        "From 1234 Mon Sep 17 00:00:00 2001\nSubject: [PATCH] faster\n\nSome text.\n---\n x.py | 3 ++-\n\n"
        + ONE
        + "-- \n2.39.5\n\n"
    )
    assert only(parse(mail, {"x.py": ONE_HEAD})).added == {2, 3, 12}


def test_content_that_looks_like_a_header() -> None:
    diff = """\
diff --git a/x.sql b/x.sql
--- a/x.sql
+++ b/x.sql
@@ -1,4 +1,4 @@
--- x
-diff --git a/y b/y
-@@ -1 +1 @@
+++ y
+diff --git a/z b/z
+@@@ -1 +1 @@@
 Binary files a and b differ
"""
    head = b"++ y\ndiff --git a/z b/z\n@@@ -1 +1 @@@\nBinary files a and b differ\n"
    assert only(parse(diff, {"x.sql": head})).added == {1, 2, 3}


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "b/../../etc/passwd", "b/x/../../y", "b/C:/x.py", "b/..\\\\x.py", "b/.git/config",
     "b/x\\000.py", "b/x\\377.py", "b/\\\\\\\\host\\\\x.py"],
)  # fmt: skip
def test_a_path_out_of_the_tree_never_reaches_the_reader(name: str) -> None:
    asked: list[str] = []

    def heads(path: str) -> bytes:
        asked.append(path)
        return b"a\n"

    change = parse_diff(f'--- /dev/null\n+++ "{name}"\n@@ -0,0 +1 @@\n+a\n'.encode(), heads)
    assert (change.files, asked) == ((), [])
    (item,) = change.not_reviewed
    assert "leaves the tree" in item.reason
    item.path.encode("utf-8")


def test_heads_is_asked_once_and_only_for_hunks() -> None:
    asked: list[str] = []

    def heads(path: str) -> None:
        asked.append(path)

    quiet = "diff --git a/m.py b/m.py\nold mode 100644\nnew mode 100755\n"
    binary = "diff --git a/w.bin b/w.bin\nindex 1..2 100644\nBinary files a/w.bin and b/w.bin differ\n"
    parse_diff((quiet + ONE + binary).encode(), heads)
    assert asked == ["x.py"]


@pytest.mark.parametrize("diff", ["", "\n\n", "diff --git a/x.py b/x.py\nold mode 100644\nnew mode 100755\n"])
def test_nothing_to_review(diff: str) -> None:
    assert parse(diff, {}) == Change((), ())


@pytest.mark.parametrize(
    ("diff", "told"),
    [
        ("diff --cc x.py\nindex 1,2..3\n--- a/x.py\n+++ b/x.py\n@@@ -1 -1 +1 @@@\n++a\n", "git diff main"),
        ("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,1 @@@\n++a\n", "combined diff"),
        ("hello\nworld\n", "not a unified diff"),
        ("@@ -1 +1 @@\n-a\n+b\n", "not a unified diff"),
        (ONE.replace("+1,4", "+1,5"), "damaged"),
        (ONE.replace("+1,4", "+1,3"), "damaged"),
        (ONE.replace("+11,3", "+11,2"), "damaged"),
        (ONE.replace("-10,2 +11,3", "-10,1 +11,2"), "line 14 of the diff: the hunk is longer"),
        (ONE.replace("+11,3", "+2,3"), "must start at line 5 or later"),
        (ONE.replace("+1,4", "+0,4"), "must start at line 1 or later"),
        (ONE.replace("+11,3", "+" + "9" * 4300 + ",3"), "must start at line 5 or later"),
        (ONE.replace("@@ -10,2", "@@ -x,2"), "hunk header"),
        (ONE.replace("-10,2", "-" + "9" * 5000 + ",2"), "damaged"),
        (ONE.replace("+++ b/x.py", "+++ b/y.py"), "two files"),
        (ONE[: ONE.index("@@")], "cut or damaged"),
        (ONE[: ONE.index(" d")], "damaged"),
        (ONE + ONE, "series of patches"),
        ('--- "a/x\n+++ "b/x\n@@ -1 +1 @@\n-a\n+b\n', "quoted name"),
        ('--- "a/\\q"\n+++ "b/\\q"\n@@ -1 +1 @@\n-a\n+b\n', "quoted name"),
    ],
)  # fmt: skip
def test_refused(diff: str, told: str) -> None:
    with pytest.raises(ChangeError) as error:
        parse(diff, {"x.py": ONE_HEAD})
    assert told in str(error.value)
    assert len(str(error.value)) < 500 and str(error.value).isprintable()


def test_a_huge_diff() -> None:
    count = 100_000
    body = "".join(f"+line {number}\n" for number in range(count))
    diff = f"--- /dev/null\n+++ b/x.py\n@@ -0,0 +1,{count} @@\n{body}"
    head = "".join(f"line {number}\n" for number in range(count)).encode()
    assert len(only(parse(diff, {"x.py": head})).added) == count


def test_long_hostile_lines_cost_linear_time() -> None:
    # Each of these would take hours in a pattern with nested repetition.
    for line in (
        "Binary files " + " and a" * 200_000,
        "diff --git " + "://" * 200_000,
        "--- " + '"' * 500_000,
    ):
        with pytest.raises(ChangeError):
            parse(f"{line}\n+++ b/x\n@@ -1 +1 @@\n+a\n", {})


# --- properties

LINES = st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=30)
LIKELY = st.lists(
    st.sampled_from([b"", b"a", b"b", b" c", b"d\r", b"-- x", b"++ y", b"\\ z", b"@@"]), max_size=40
)


@st.composite
def changes(draw: st.DrawFn) -> tuple[bytes, bytes, set[int], int]:
    """A diff, its head, the head lines that are new, and the number of head lines."""
    old, new = draw(LINES | LIKELY), draw(LINES | LIKELY)
    if draw(st.booleans()):  # mostly alike, as in real changes
        new = [*old]
        for line in draw(LIKELY)[:4]:
            new.insert(draw(st.integers(0, len(new))), line)
    before, after = ([line.decode("latin-1") for line in lines] for lines in (old, new))
    context = draw(st.integers(0, 4))
    diff = list(difflib.unified_diff(before, after, "a/x.py", "b/x.py", n=context, lineterm=""))
    matcher = difflib.SequenceMatcher(None, before, after)
    added = {
        number + 1
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag != "equal"
        for number in range(start, end)
    }
    text = "".join(line + "\n" for line in diff).encode("latin-1")
    return text, b"".join(line + b"\n" for line in new), added, len(new)


@given(changes(), st.integers(1, 45), st.integers(0, 45))
def test_added_is_what_is_new_and_anchors_stay_inside(
    change: tuple[bytes, bytes, set[int], int], start: int, length: int
) -> None:
    diff, head, added, count = change
    result = parse(diff, {"x.py": head})
    assert result.not_reviewed == ()
    if not added:
        assert all(not file.added for file in result.files)
        return
    file = only(result)
    assert file.added == added
    assert all(hunk.start >= 1 and hunk.start + hunk.count - 1 <= count for hunk in file.hunks)
    assert added <= {line for hunk in file.hunks for line in hunk.lines()}
    check_anchor(file, start, start + length)


def check_anchor(file: ChangedFile, start: int, end: int) -> None:
    span = file.anchor(start, end)
    touched = [hunk for hunk in file.hunks if set(hunk.lines()) & set(range(start, end + 1))]
    if span is None:
        assert not touched
        return
    assert start <= span.start <= span.end <= end
    holders = [hunk for hunk in file.hunks if set(span.lines()) <= set(hunk.lines())]
    assert len(holders) == 1
    first = min((line for line in file.added if start <= line <= end), default=None)
    assert (first in span.lines()) if first else (holders[0] == touched[0])


@given(changes(), st.data())
def test_damage_gives_a_change_error_or_a_sound_change(
    change: tuple[bytes, bytes, set[int], int], data: st.DataObject
) -> None:
    diff, head, _, _ = change
    lines = (diff + ONE.encode()).splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "duplicate", "drop", "swap", "header"]))
        if kind == "flip" and lines[index]:
            line = bytearray(lines[index])
            line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
            lines[index] = bytes(line)
        elif kind == "cut":
            lines[index] = lines[index][: data.draw(st.integers(0, len(lines[index])))]
            lines = lines[: index + 1]
        elif kind == "duplicate":
            lines.insert(data.draw(st.integers(0, len(lines))), lines[index])
        elif kind == "drop" and len(lines) > 1:
            del lines[index]
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[index], lines[other] = lines[other], lines[index]
        elif kind == "header":
            lines.insert(index, data.draw(st.sampled_from(HEADERS)))
    check_sound(b"".join(lines), head)


HEADERS = [
    b"diff --git a/x b/x\n", b"diff --git \n", b'diff --git "a/x" b/x\n', b"--- a/x.py\n", b"+++ b/x.py\n",
    b"@@ -1 +1 @@\n", b"@@ -0,0 +0,0 @@\n", b"@@ -1,99999999999 +1 @@\n", b"GIT binary patch\n",
    b"Binary files a/x and b/x differ\n", b"rename from x\n", b"rename to \n", b'copy to "\\777"\n',
    b"new file mode 100644\n", b"deleted file mode 100644\n", b"index 1..2 160000\n", b"\\ No newline\n",
    b"\n",
]  # fmt: skip


@given(st.binary(max_size=200) | st.lists(st.sampled_from(HEADERS), max_size=12).map(b"".join))
def test_garbage(diff: bytes) -> None:
    check_sound(diff, b"a\n")


def check_sound(diff: bytes, head: bytes) -> None:
    try:
        result = parse_diff(diff, lambda path: head)
    except ChangeError as error:
        assert str(error).isprintable()
        return
    count = len(whole_file("x.py", head).added)
    for file in result.files:
        before = 0
        for hunk in file.hunks:
            assert before < hunk.start and hunk.count >= 1
            before = hunk.start + hunk.count - 1
        assert before <= count
        for line in file.added:
            check_anchor(file, line, line + 3)
    for item in result.not_reviewed:
        item.path.encode("utf-8")
