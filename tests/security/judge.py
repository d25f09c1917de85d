"""Judges what we write on GitHub: hostile text may stand in it, but only as text."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ptopt.github import markers

# A bit of everything that GitHub, a terminal or a runner would act on. Each address has the word "evil".
HOSTILE = (
    "<!-- ptopt:answer 1 0 ignore=PTO101 --> @evil-team/all #1 GH-1 _GH-2 evil/repo#3 evil/repo@deadbeefdeadbeef "
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef https://evil.example/a www.evil.example _www.evil.example "
    "mailto:evil@evil.example <https://evil.example> [evil](https://evil.example) [evil]: https://evil.example "
    "![x](https://evil.example/beacon.png) <img src=https://evil.example/b.png> <script>evil()</script> "
    "--> <details><summary>evil :+1: :tada: $x^2$ $`x`$ $$y$$ ``` ~~~ ```` `````suggestion ~~~~~~ [ ] [x] [^1] "
    "[^1]: evil | a | b | ~~x~~ **b** &lt; \u202eevil\u202c \u200b\u2066\ufeff \u3164 \x1b[31m \x07 \\ ##[add-mask]evil "
    "::set-env name=evil::1 ${{ evil }}"
)
_OURS = re.compile(
    r"<!-- ptopt:[a-z]+(?: [\w.,=-]+)* -->|</?sub>|</?span>|</?details>(?:<summary>[\w ,.()]+</summary>)?|"
    r"<summary>[\w ,.()]+</summary>",
    re.A,
)
# Of a finding: the rule is one of ours, and so is its page.
_TITLE = re.compile(
    r"^\*\*\[PTO\d{3} ([\w-]+)\]\(<https://github\.com/ptopt/ptopt/blob/main/docs/rules/\1\.md>\)\*\* · \w+ severity",
    re.M | re.A,
)
_ACTED_UPON = re.compile(
    r"@[\w-]|#\d|\w://|(?<![a-z0-9])(?:www\.|gh-\d|[0-9a-f]{7,40}(?![a-z0-9]))|:[+\w-]+:|mailto:\w|\$`|"
    r"(?<!\\)\$\S",
    re.I | re.A,
)
_FENCES = {"", "suggestion", "diff", "toml", "python", "console"}
_MARKUP = {"image", "s_open", "heading_open", "hr", "em_open", "strong_open", "link_open", "blockquote_open"}


def tokens(text: str) -> list[Token]:
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found += [token, *(token.children or ())]
    return found


def assert_inert(
    text: str, *kinds: str, marks: int | None = None, markup: frozenset[str] = frozenset()
) -> None:
    """Nothing of the text acts but our own: markers of `kinds` at its beginning, and `markup`, which is ours."""
    shown = text.replace("\n", "").replace("\r", "").replace("\t", "").replace("\u3000", "")
    assert shown.isprintable(), ascii(text)
    assert not re.search("[\u3164\u115f\u1160\uffa0]", text), ascii(text)
    assert {mark.kind for mark in markers.read(text)} <= set(kinds), text
    if marks is not None:
        assert len(markers.read(text)) == marks, text
    found = tokens(_TITLE.sub("title", text))
    for token in found:
        assert token.type not in _MARKUP - markup or "evil" not in str(token.attrs) + token.content, text
        if token.type in _MARKUP - markup:
            assert token.type == "link_open" and str(token.attrs["href"]).startswith("https://"), (
                token,
                text,
            )
        if token.type == "fence":
            assert token.info in _FENCES, text
        if token.type in ("html_block", "html_inline"):
            assert not _OURS.sub("", token.content).strip(), (token.content, text)
    spoken = "\n".join(_spoken(token) for token in found if token.children)
    assert not (acted := _ACTED_UPON.search(spoken)), (acted, text)


def _spoken(token: Token) -> str:
    """The text that GitHub looks through: no code, and a mark where something of ours stands in between."""
    said, linked = "", 0
    for child in token.children or ():
        linked += child.nesting if child.type.startswith("link_") else 0
        if not linked:
            said += child.content if child.type in ("text", "text_special", "softbreak") else "\0"
    # GitHub's own way to write a dollar sign that begins no mathematics.
    return said.replace("\0$\0", "\0").replace("\u200b", "\0")


def assert_harmless_lines(text: str) -> None:
    """What a runner prints: only annotations and the outputs of our own, whatever stands in them."""
    assert "\x1b" not in text and "\x07" not in text
    for line in text.splitlines():
        command = re.match(r"\s*::(\w[\w-]*)", line)
        if command:
            assert command[1] in ("warning", "notice", "error"), line
            continue
        assert not line.lstrip().startswith("::"), line
        assert "##[" not in line, line  # the old form counts wherever it stands
