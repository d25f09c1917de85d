"""The page of a rule for a terminal: plain text, or with the colours of its theme; links as addresses that can be opened."""

from __future__ import annotations

import io
import re
import textwrap
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from ptopt.address import absolute
from ptopt.report.rulelist import page
from ptopt.report.text import PROSE
from ptopt.rules.base import Rule

_INDENT = 4  # of code
_BESIDE = 10  # columns of a line that a link does not have: those of a list, and brackets around it
_LINK = re.compile(r"\]\((https://[^\s()<>]+)\)")
_SHORT = re.compile(r"ptopt-link-(\d+)-+")


class _Title(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text.plain, "bold")


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if console.color_system is None:  # to be copied: its lines stay whole
            indented = textwrap.indent(code, " " * _INDENT)
            yield Text(indented, no_wrap=True, overflow="ignore")
            return
        syntax = Syntax(code, self.lexer_name, theme=self.theme, background_color="default")
        yield Padding(syntax, (0, 0, 0, _INDENT))


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _Title, "fence": _Code, "code_block": _Code,
    }  # fmt: skip


def render(rule: type[Rule], width: int, color: bool) -> str:
    """The page in at most `width` columns."""
    out = io.StringIO()
    columns = max(min(width, PROSE), 40)
    text, links = _with_short_links(absolute(page(rule)), columns - _BESIDE)
    console = Console(
        file=out,
        width=columns,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    shown = _Page(text, code_theme="ansi_dark", hyperlinks=False)
    for token in () if color else shown.parsed:
        for part in token.children or ():
            if part.type == "code_inline":  # as no colour marks it
                part.content = f"`{part.content}`"
    console.print(shown, crop=False)
    whole = _SHORT.sub(lambda match: links[int(match[1])], out.getvalue())
    return "".join(f"{line.rstrip()}\n" for line in whole.rstrip("\n").split("\n"))


def _with_short_links(text: str, room: int) -> tuple[str, list[str]]:
    """The page, where a stand-in of `room` columns takes the place of each longer link; and these links.

    A link in two parts cannot be followed. Markdown escapes what is not ASCII in a link, so that these stand-ins are.
    """
    links: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        if len(match[1]) <= room:
            return match[0]
        links.append(match[1])
        return f"]({f'ptopt-link-{len(links) - 1}-':-<{room}})"

    return _LINK.sub(stand_in, text), links
