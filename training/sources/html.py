"""Text and code of a web page. Scripts, styles and comments are dropped; nothing of a page is ever rendered or run.

A stream parser and not a tree: HTML5 tree builders take quadratic time on elements nested thousands deep.
"""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

from training.sources.base import clean

_DROPPED = frozenset("script style noscript template iframe object svg nav footer form".split())
_BLOCKS = frozenset(
    "p div li ul ol section article blockquote tr table dl dt dd br hr h1 h2 h3 h4 h5 h6".split()
)
_VOID = frozenset("br hr img input link meta wbr source col area base embed".split())
_MAX_BLOCKS = 200


@dataclass(frozen=True, slots=True)
class Extract:
    """The visible text, in which code is fenced, and the code blocks alone."""

    text: str
    code: tuple[str, ...]
    title: str = ""


def extract(page: str, *, only: str = "") -> Extract:
    """Read `page`; with `only`, what stands inside the first element with that tag name (such as "article"), if any."""
    reader = _Reader(only)
    reader.feed(page)
    reader.close()
    if only and not reader.found:
        return extract(page)
    reader.end_code()
    lines = (line.strip() if not fenced else line for fenced, line in _lines("".join(reader.text)))
    text = "\n".join(line for line in lines if line)
    return Extract(clean(text), tuple(reader.code[:_MAX_BLOCKS]), clean("".join(reader.title), 300).strip())


def _lines(text: str) -> list[tuple[bool, str]]:
    fenced = False
    found = []
    for line in text.split("\n"):
        edge = line.startswith("```")
        found.append((fenced or edge, line.rstrip()))
        fenced ^= edge
    return found


class _Reader(HTMLParser):
    def __init__(self, only: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.code: list[str] = []
        self.title: list[str] = []
        self.found = False
        self._only = only
        self._inside = 0  # depth below the wanted element
        self._dropped: list[str] = []
        self._pre: list[str] | None = None
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._only and not self._inside and tag == self._only and not self.found:
            self.found = True
            self._inside = 1
        elif self._inside and tag == self._only:
            self._inside += 1
        if tag in _DROPPED and tag not in _VOID:
            self._dropped.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag == "pre" and self._wanted() and self._pre is None:
            self._pre = []
        elif tag in _BLOCKS and self._wanted():
            (self.text if self._pre is None else self._pre).append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropped:
            while self._dropped.pop() != tag:
                pass
        elif tag == "title":
            self._in_title = False
        elif tag == "pre":
            self.end_code()
        elif tag in _BLOCKS and tag not in _VOID and self._wanted() and self._pre is None:
            self.text.append("\n")
        if self._inside and tag == self._only:
            self._inside -= 1

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif self._wanted():
            (self.text if self._pre is None else self._pre).append(data)

    def end_code(self) -> None:
        """Close the code block that is open."""
        if self._pre is None:
            return
        code = clean("".join(self._pre)).strip("\n")
        self._pre = None
        if code.strip():
            self.code.append(code + "\n")
            self.text.append(f"\n```\n{code}\n```\n")

    def _wanted(self) -> bool:
        return not self._dropped and (not self._only or self._inside > 0)
