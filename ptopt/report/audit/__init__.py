"""Reports of an audit: one module for each format, each deterministic, each with all that others wrote escaped."""

from __future__ import annotations

from ptopt.audit.values import Audit

FORMATS = ("terminal", "markdown", "json", "html")


def render(name: str, audit: Audit, *, width: int = 100, color: bool = False) -> str:
    """The audit in the format `name`, one of `FORMATS`; `width` (columns) and `color` are for the terminal."""
    if name == "terminal":
        from ptopt.report.audit.terminal import render as terminal

        return terminal(audit, width, color)
    if name == "markdown":
        from ptopt.report.audit.markdown import render as markdown

        return markdown(audit)
    if name == "json":
        from ptopt.report.audit.json import render as json

        return json(audit)
    from ptopt.report.audit.html import render as html

    return html(audit)
