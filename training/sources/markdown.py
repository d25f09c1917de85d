"""Code blocks of Markdown, as GitHub's threads hold them."""

from __future__ import annotations

from markdown_it import MarkdownIt

from training.sources.base import clean

_PYTHON = frozenset({"", "python", "py", "python3", "pycon"})


def fenced(markdown: str) -> list[str]:
    """The fenced and indented code blocks that are Python, or do not say what they are."""
    found = []
    for token in MarkdownIt("commonmark").parse(clean(markdown, 100_000)):
        language = token.info.split(maxsplit=1)[0].lower() if token.info.strip() else ""
        if token.type in ("fence", "code_block") and language in _PYTHON and token.content.strip():
            found.append(token.content)
    return found
