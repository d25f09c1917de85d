"""The page of a rule for a terminal: plain text, or with the colours of its theme; links as addresses that can be opened."""

from __future__ import annotations

import io
import textwrap
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from ptopt.address import absolute
from ptopt.report.rulelist import page
from ptopt.rules.base import Rule

_INDENT = 4  # of code
_WIDEST = 100  # columns in which prose is easy to read


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
    console = Console(
        file=out,
        width=max(min(width, _WIDEST), 40),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    console.print(_Page(absolute(page(rule)), code_theme="ansi_dark", hyperlinks=False), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").split("\n"))
