"""Comments that silence findings: where they count, what they name, and which were of no use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.suppress import Suppressions, Use, add_suppressions, find_suppressions

RULE = ("PTO101", "item-in-step", "sync")


def silenced(text: str, start: int, end: int | None = None) -> bool:
    return bool(find_suppressions(text).matching(RULE, start, end or start))


@pytest.mark.parametrize(
    "comment",
    [
        "# ptopt: ignore",
        "#ptopt:ignore",
        "# ptopt: ignore logged on purpose",
        "# ptopt: ignore[PTO101]",
        "# ptopt: ignore[pto101] once per epoch",
        "# ptopt: ignore[PTO999, item-in-step]",
        "# ptopt: ignore[sync]",
        "# type: ignore  # ptopt: ignore[PTO101]",
        "# ptopt: ignore[PTO999]  # noqa: PTO101",
        "# noqa",
        "#NoQA",
        "# noqa: PTO101",
        "# noqa:E501,PTO101",
        "# noqa: E501 PTO101 reason",
        "# noqa: the reason",
    ],
)
def test_silences_its_line(comment: str) -> None:
    text = f"a = 1\nx = loss.item()  {comment}\nb = 2\n"
    assert silenced(text, 2)
    assert silenced(text, 1, 3)
    assert not silenced(text, 1)
    assert not silenced(text, 3)


@pytest.mark.parametrize(
    "comment",
    [
        "# ptopt: ignore[PTO102]",
        "# ptopt: ignore[]",
        "# ptopt: ignore[PTO101",
        "# ptopt: ignored",
        "# ptopt: ignore-this",
        "# ptopt ignore",
        "# noqa: E501",
        "# noqas",
        "# ruff: noqa",
        "# flake8: noqa",
    ],
)
def test_does_not_silence(comment: str) -> None:
    assert not silenced(f"x = loss.item()  {comment}\n", 1)


def test_strings_are_no_comments() -> None:
    assert not silenced('x = "# ptopt: ignore"\n', 1)
    assert not silenced('"""\n# ptopt: ignore-file\n"""\nx = 1\n', 4)
    assert silenced('x = """\n"""  # ptopt: ignore\n', 2)


def test_a_comment_of_its_own_counts_for_the_next_statement() -> None:
    text = "a = 1\n# ptopt: ignore[PTO101] reason\n\n# more words\nx = f(\n    y,\n)\nb = 2\n"
    assert [line for line in range(1, 9) if silenced(text, line)] == [2, 3, 4, 5, 6, 7]


def test_a_comment_before_a_block_counts_for_its_first_line() -> None:
    text = "if a:\n    # ptopt: ignore\n    for x in y:\n        x.item()\n"
    assert silenced(text, 3)
    assert not silenced(text, 4)


def test_a_comment_after_code_does_not_count_for_the_next_line() -> None:
    assert not silenced("f(\n    a,  # ptopt: ignore\n)\nb = 2\n", 4)
    assert not silenced("# noqa\nb = 2\n", 2)


def test_whole_file() -> None:
    assert silenced("# ptopt: ignore-file[sync] generated\n" + "x = 1\n" * 50, 40)
    assert silenced("\n" * 19 + "# ptopt: ignore-file\nx = 1\n", 21)
    assert not silenced("# ptopt: ignore-file[PTO102]\nx = 1\n", 2)


def test_a_file_comment_that_comes_too_late_silences_nothing_and_is_reported() -> None:
    found = find_suppressions("\n" * 20 + "# ptopt: ignore-file[sync]\nx = 1\n")
    assert not found.matching(RULE, 22, 22)
    assert found.unused(frozenset()) == ((21, ("sync",)),)


def test_unused() -> None:
    found = find_suppressions(
        "a = 1  # ptopt: ignore[PTO101, PTO102]\n"
        "b = 1  # ptopt: ignore\n"
        "c = 1  # noqa\n"
        "d = 1  # noqa: E501, PTO103\n"
        "e = 1  # noqa: E501\n"
        "f = 1  # ptopt: ignore[PTO104\n"
    )
    used = found.matching(RULE, 1, 1)
    assert found.unused(used) == ((1, ("PTO102",)), (2, ()), (4, ("PTO103",)), (6, ()))
    used |= found.matching(RULE, 2, 2)
    assert found.unused(used) == ((1, ("PTO102",)), (4, ("PTO103",)), (6, ()))


def test_all_comments_that_silence_are_in_use() -> None:
    found = find_suppressions("# ptopt: ignore[sync]\nx = 1  # noqa: PTO101\n")
    used = found.matching(RULE, 2, 2)
    assert len(used) == 2
    assert found.unused(used) == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_those_of_ast(end: str) -> None:
    text = "\ufeff" + end.join(["a = 1", "b = 2  # ptopt: ignore", "c = 3", ""])
    assert [line for line in (1, 2, 3) if silenced(text, line)] == [2]


@pytest.mark.parametrize(
    "text",
    ["x = (  # ptopt: ignore\n", "if a:\n        b  # noqa\n   c\n", "'''  # noqa"],
)
def test_text_that_is_no_python_has_no_suppressions(text: str) -> None:
    assert find_suppressions(text).unused(frozenset()) == ()
    assert not silenced(text, 1)


LINES = st.lists(
    st.sampled_from(
        [
            "x = 1",
            "# ptopt: ignore[A]",
            "# noqa",
            "(",
            ")",
            "'''",
            "if x:",
            "    y",
            "\\",
            "# ptopt: ignore-file",
            "\x0c",
        ]
    ),
    max_size=12,
)


@given(LINES, st.sampled_from(["\n", "\r\n", " ", "\r"]), st.text(max_size=20))
def test_any_text_is_read_the_same_way_twice(lines: list[str], end: str, tail: str) -> None:
    text = end.join(lines) + tail + "# noqa"

    def ask(found: Suppressions) -> tuple[list[frozenset[Use]], tuple[tuple[int, tuple[str, ...]], ...]]:
        matching = [found.matching(RULE, line, line) for line in range(1, 15)]
        return matching, found.unused(frozenset().union(*matching))

    assert ask(find_suppressions(text)) == ask(find_suppressions(text))


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("x = 1\n", 1, "# ptopt: ignore[a]\nx = 1\n"),
        ("if x:\n\ty = (\n    1)\n", 3, "if x:\n\t# ptopt: ignore[a]\n\ty = (\n    1)\n"),
        ('x = """\nq\n"""\n', 2, '# ptopt: ignore[a]\nx = """\nq\n"""\n'),
        ("if x:\n    y\nelif z:\n    y\n", 3, "if x:\n    y\n# ptopt: ignore[a]\nelif z:\n    y\n"),
        ("@f\ndef g(): pass\n", 2, "@f\n# ptopt: ignore[a]\ndef g(): pass\n"),
        ("# c\r\n\r\nx = \\\r\n  1\r\n", 4, "# c\r\n\r\n# ptopt: ignore[a]\r\nx = \\\r\n  1\r\n"),
        ("x = (\n", 1, "x = (\n"),
    ],
)
def test_comments_are_added_above_the_statement(before: str, line: int, after: str) -> None:
    assert add_suppressions(before, [(line, "a")], "") == after
    if after != before:
        assert find_suppressions(after).matching(("PTO1", "a", "f"), line + 1, line + 1)


def test_one_comment_for_all_findings_of_a_statement() -> None:
    text = add_suppressions("x = [\n 1]\ny\n", [(3, "c"), (2, "b"), (1, "a"), (1, "b")], "why")
    assert text == "# ptopt: ignore[a, b] why\nx = [\n 1]\n# ptopt: ignore[c] why\ny\n"
