"""Code blocks in Markdown, such as GitHub issues."""

from __future__ import annotations

from markdown_it import MarkdownIt

from training.sources.base import clean

_PYTHON = frozenset({"", "python", "py", "python3", "pycon"})


def code_blocks(markdown: str) -> list[str]:
    """The fenced and indented code blocks that are Python or name no language."""
    found = []
    for token in MarkdownIt("commonmark").parse(clean(markdown, 100_000)):
        language = token.info.split(maxsplit=1)[0].lower() if token.info.strip() else ""
        if token.type in ("fence", "code_block") and language in _PYTHON and token.content.strip():
            found.append(token.content)
    return found
