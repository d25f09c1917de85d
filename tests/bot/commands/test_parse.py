from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.commands.parse import MOST_TEXT, Line, commands, new_commands


def texts(body: str) -> list[str]:
    return [str(line) for line in commands(body)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("/ptopt help", ["/ptopt help"]),
        ("/ptopt", ["/ptopt"]),
        ("Thanks!\n\n/ptopt Review --full\n", ["/ptopt review --full"]),
        ("/PTOPT help", ["/ptopt help"]),
        ("   /ptopt   explain\tPTO101  ", ["/ptopt explain PTO101"]),
        ("hello\r\n/ptopt help\r\nbye\r\n", ["/ptopt help"]),
        ("/ptopt pause\n/ptopt status\n/ptopt pause", ["/ptopt pause", "/ptopt status"]),
        ("/ptopt help\n---\nsignature", ["/ptopt help"]),
        ("/ptopt help  \n/ptopt status", ["/ptopt help", "/ptopt status"]),
        ("- done\n/ptopt review", ["/ptopt review"]),
        ("<details>\n<summary>x</summary>\n\n/ptopt help\n\n</details>", ["/ptopt help"]),
        ("x <!-- y -->\n/ptopt help", ["/ptopt help"]),
        ("use `/ptopt fix`\n/ptopt fix", ["/ptopt fix"]),
        ("/ptopt feedback bad `x` *is* <b>not</b> [slow](y) &amp; \\* :+1:",
         ["/ptopt feedback bad `x` *is* <b>not</b> [slow](y) &amp; \\* :+1:"]),
    ],
)  # fmt: skip
def test_commands(body: str, expected: list[str]) -> None:
    assert texts(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "",
        "see /ptopt help",
        "/ptopted help",
        "/ptopt-review",
        "`/ptopt help`",
        "**/ptopt help**",
        "- /ptopt help",
        "# /ptopt help",
        "\\/ptopt help",
        "> /ptopt help",
        "> hello\n> /ptopt help",
        "> hello\n/ptopt help",  # GitHub shows it as part of the quote
        ">> /ptopt help",
        "- > /ptopt help",
        "```\n/ptopt help\n```",
        "~~~sh\n/ptopt help\n~~~",
        "````\n```\n/ptopt help\n```\n````",
        "```\n    ```\n/ptopt help\n```",
        "```\n/ptopt help",
        "- ```\n  /ptopt help\n  ```",
        "hello\n\n    /ptopt help",
        "\t/ptopt help",
        "`code over\n/ptopt help\ntwo lines`",
        "<!--\n/ptopt help\n-->",
        "<!--\n\n/ptopt help\n\n-->",
        "hello <!--\n/ptopt help\n-->",
        "<!--\n/ptopt help",
        "<pre>\n/ptopt help\n\n/ptopt help\n</pre>",
        "<details>\n/ptopt help\n</details>",
        '[a]: /b "c\n/ptopt help\nd"',
        "@ptopt help",
        "x" * MOST_TEXT + "\n\n/ptopt help",
    ],
)
def test_no_commands(body: str) -> None:
    assert texts(body) == []


def test_a_command_is_bounded() -> None:
    (line,) = commands("/ptopt feedback bad " + "word " * 2000)
    assert len(str(line)) <= 1000


@pytest.mark.parametrize(
    ("body", "before", "expected"),
    [
        ("/ptopt help", None, ["help"]),
        ("/ptopt help", "", ["help"]),
        ("/ptopt help", "/ptopt help", []),
        ("/ptopt help, fixed a typo", "/ptopt help", ["help,"]),
        ("please\n/ptopt HELP", "/ptopt help", []),
        ("/ptopt help\n/ptopt status", "/ptopt help", ["status"]),
        ("/ptopt help", "`/ptopt help`", ["help"]),
        ("> /ptopt help", "/ptopt help", []),
        ("/ptopt ignore PTO102", "/ptopt ignore PTO101", ["ignore"]),
        ("/ptopt fix", "x" * MOST_TEXT + "\n\n /ptopt  FIX", []),
    ],
)
def test_an_edit_runs_what_is_new(body: str, before: str | None, expected: list[str]) -> None:
    assert [line.verb for line in new_commands(body, before)] == expected


def test_the_verb_is_case_insensitive_and_the_arguments_are_kept() -> None:
    assert commands("/ptopt EXPLAIN Item-Every-Step") == (Line("explain", ("Item-Every-Step",)),)


_PIECES = st.sampled_from(
    ["/ptopt help", "/ptopt", "`", "```", "~~~", "````", "> ", "- ", "1. ", "    ", "  ", "\t", "\n", "\n\n", "\r\n",
     "<!--", "-->", "<pre>", "</pre>", "<div>", "text", "\\", "# ", "---", "[a]: /b", '"', "<a b='", "'>", "\0"]
)  # fmt: skip
_MARKDOWN = st.lists(_PIECES, max_size=30).map("".join)


@settings(deadline=None)
@given(st.text() | _MARKDOWN)
@example("/ptopt \ud800")
def test_any_text_can_be_read(body: str) -> None:
    for line in commands(body):
        assert line.verb == line.verb.lower()
        assert all(word.split() == [word] for word in line.words)
    assert new_commands(body, body) == ()


@settings(deadline=None)
@given(_MARKDOWN)
def test_quoted_text_never_runs(body: str) -> None:
    assert commands("\n".join(f"> {line}" for line in re.split(r"\r\n|\n|\r", body))) == ()


@settings(deadline=None)
@given(_MARKDOWN)
def test_fenced_text_never_runs(body: str) -> None:
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    assert commands(f"{fence}\n{body}\n{fence}") == ()


@settings(deadline=None)
@given(_MARKDOWN)
def test_what_github_shows_as_code_or_hides_never_runs(body: str) -> None:
    """Each command stands at the beginning of a line of text, by the account of the whole of CommonMark."""
    visible: list[str] = []
    quotes = 0
    for token in MarkdownIt("commonmark").parse(body):
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type == "inline" and not quotes:
            text = "".join(
                child.content
                if child.type in {"text", "text_special"}
                else "\n"
                if "break" in child.type
                else ""
                for child in token.children or ()
            )
            visible += text.split("\n")
    words = {line.split()[0].lower() for line in visible if line.split()}
    assert "/ptopt" in words or not commands(body)
