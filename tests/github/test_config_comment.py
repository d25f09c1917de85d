"""The text of the comment on settings: hostile text stays text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ptopt.config import ConfigError, load_config
from ptopt.github import markers
from ptopt.github.config_comment import body
from ptopt.rules import known_names


def problems(text: str) -> tuple[str, ...]:
    try:
        load_config({".ptopt.toml": text.encode()}, known_names())
    except ConfigError as error:
        return error.problems
    return ()


def test_each_kind_of_problem_has_its_words() -> None:
    valid = body((), ())
    assert "is valid again" in valid
    base = body((".ptopt.toml: not UTF-8 text, see byte 3",), ())
    assert "reviewed with the defaults" in base and "see byte 3" in base
    head = body((), problems("buget = 3"))
    assert "This pull request makes the configuration invalid" in head and "did you mean 'budget'" in head
    assert "defaults" not in head
    for text in (valid, base, head):
        assert markers.first(text, "config") == markers.config()


def test_many_problems_are_counted() -> None:
    text = body((), tuple(f".ptopt.toml: problem {number}" for number in range(51)))
    assert text.count("\n- ") == 21
    assert "… and 31 more" in text


LIVE = {"link_open", "image", "html_inline", "html_block", "heading_open", "fence", "code_block"}
PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": False})
BAITS = st.lists(
    st.sampled_from(
        ["[x](https://evil)", "![x](https://evil/b.png)", "@everyone", "#12", "<img src=x>", "<!-- ", " -->"]
        + ["```", "`", "\n", "\n\n# ", "&#64;", "\\", "'", '"', "https://evil", "x", "\u202e", "<details>"]
    ),
    max_size=8,
).map("".join)


@given(st.lists(BAITS, min_size=1, max_size=3))
def test_no_text_of_the_file_comes_alive(baits: list[str]) -> None:
    quoted = [bait.encode("unicode_escape").decode().replace('"', '\\"') for bait in baits]
    found = problems("\n".join(f'"k{number}{text}" = 1' for number, text in enumerate(quoted)))
    found += tuple(f".ptopt.toml: not valid TOML: {bait}" for bait in baits)
    text = body(found, found)
    own = text.removeprefix(f"{markers.config()}\n")
    tokens = [t for block in PARSER.parse(own) for t in (block, *(block.children or ()))]
    assert not LIVE & {token.type for token in tokens}
    prose = [token.content for token in tokens if token.type == "text"]  # GitHub links nothing in code
    assert not any(mark in content for content in prose for mark in ("@e", "#1", "https://"))
    assert len(markers.read(text)) == 1
